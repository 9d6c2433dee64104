//! Whether this process was forked from the one in which something was made.

/// A number that is larger in a forked child than in its parent. Handles remember it where they are made; one that
/// remembers another number was inherited through a fork, and its threads do not exist here. Any thread.
#[cfg(unix)]
pub fn generation() -> u64 {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU64, Ordering};

    static GENERATION: AtomicU64 = AtomicU64::new(0);
    static REGISTERED: Once = Once::new();

    extern "C" fn in_child() {
        // The child has one thread, the one that runs this, so that no order needs to be kept.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    if !REGISTERED.is_completed() {
        REGISTERED.call_once(|| {
            // SAFETY: the handler only adds to an atomic, which is allowed between fork and exec.
            let status = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            if status != 0 {
                crate::base::log::warn("forks cannot be noticed: pthread_atfork ran out of memory");
            }
        });
    }
    GENERATION.load(Ordering::Relaxed)
}

/// Always zero: this system does not fork. Any thread.
#[cfg(not(unix))]
pub fn generation() -> u64 {
    0
}

#[cfg(all(test, unix))]
mod tests {
    #[test]
    fn a_child_has_another_generation() {
        let before = super::generation();
        assert_eq!(super::generation(), before);
        // SAFETY: the child only reads an atomic and leaves without running anything of its parent.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                libc::_exit(if super::generation() == before + 1 { 0 } else { 1 });
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
        }
        assert_eq!(super::generation(), before);
    }
}
