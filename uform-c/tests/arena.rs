//! Arenas: places, growth, reuse and refusals.

use uform_c::base::{Dtype, Status};
use uform_c::executors::{Arena, ArenaMatrix, Executor, Residency};

/// The bytes of a matrix.
fn bytes<'arena>(matrix: ArenaMatrix) -> &'arena mut [u8] {
    // SAFETY: the arena is alive and gave these bytes to this matrix alone, which each test views once at a time.
    unsafe { std::slice::from_raw_parts_mut(matrix.pointer.as_ptr(), matrix.rows * matrix.row_stride) }
}

#[test]
fn matrices_are_aligned_apart_and_stay_in_place_while_the_arena_grows() {
    let mut arena = Arena::new_in(None).unwrap();
    let mut matrices = Vec::new();
    for index in 0..200usize {
        let dtype = [Dtype::F32, Dtype::F16, Dtype::I8, Dtype::B1][index % 4];
        let matrix = arena.allocate(1 + index, 1 + index * 7, dtype).unwrap();
        assert_eq!((matrix.rows, matrix.columns, matrix.dtype), (1 + index, 1 + index * 7, dtype));
        assert_eq!(matrix.pointer.as_ptr().align_offset(64), 0);
        assert_eq!(matrix.row_stride % 64, 0);
        assert!(
            matrix.row_stride >= dtype.row_bytes(matrix.columns)
                && matrix.row_stride < dtype.row_bytes(matrix.columns) + 64
        );
        bytes(matrix).fill(index as u8);
        matrices.push(matrix);
    }
    for (index, matrix) in matrices.iter().enumerate() {
        assert!(bytes(*matrix).iter().all(|byte| *byte == index as u8));
    }
    let described = arena.describe();
    assert_eq!(
        described.bytes_used,
        matrices.iter().map(|matrix| matrix.rows * matrix.row_stride).sum::<usize>()
    );
    assert!(described.bytes_reserved >= described.bytes_used);
    assert_eq!(described.residency, Residency::Ram);
}

#[test]
fn a_reset_arena_gives_the_same_memory_again() {
    let mut arena = Arena::new_in(None).unwrap();
    let fill = |arena: &mut Arena| -> Vec<ArenaMatrix> {
        (1..50).map(|index| arena.allocate(index, 10_000, Dtype::F32).unwrap()).collect()
    };
    let first = fill(&mut arena);
    let reserved = arena.describe().bytes_reserved;
    for _ in 0..10 {
        arena.reset();
        assert_eq!(arena.describe().bytes_used, 0);
        assert_eq!(fill(&mut arena), first);
        assert_eq!(arena.describe().bytes_reserved, reserved);
    }
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    let mut arena = Arena::new_in(None).unwrap();
    let before = arena.allocate(3, 3, Dtype::F32).unwrap();
    let described = arena.describe();
    for (rows, columns) in
        [(usize::MAX, 1), (1, usize::MAX), (usize::MAX, usize::MAX), (1 << 40, 1 << 20), (2, usize::MAX / 8)]
    {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::U8, Dtype::B1] {
            if dtype != Dtype::B1 || rows > 2 {
                let error = arena.allocate(rows, columns, dtype).unwrap_err();
                assert_eq!(error.status, Status::OutOfMemory, "{rows} × {columns} {dtype:?}");
            }
        }
    }
    assert_eq!(arena.describe(), described);
    bytes(before).fill(1);
    let empty = arena.allocate(0, 5, Dtype::F32).unwrap();
    assert_eq!((empty.rows, bytes(empty).len()), (0, 0));
    assert_eq!(arena.allocate(usize::MAX, 0, Dtype::F32).unwrap().row_stride, 0);
}

#[test]
fn an_arena_outlives_its_executor_and_moves_between_threads() {
    let executor = Executor::for_ram(&[], None, 2, 0).unwrap();
    let mut arena = Arena::new_in(Some(&executor)).unwrap();
    let matrix = arena.allocate(100, 384, Dtype::F32).unwrap();
    drop(executor);
    bytes(matrix).fill(5);
    let arena = std::thread::spawn(move || {
        assert!(arena.allocate(100, 384, Dtype::F32).is_ok());
        arena
    });
    let arena = arena.join().unwrap();
    assert!(bytes(matrix).iter().all(|byte| *byte == 5));
    assert_eq!(arena.describe().bytes_used, 2 * 100 * 384 * 4);
}
