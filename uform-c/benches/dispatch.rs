//! What it costs to split work over threads, against rayon, forkunion and paralight in the same run; how soon a parked
//! executor computes; and whether it is idle when it is parked.
//!
//! `cargo bench -p uform-c --bench dispatch`. Machines that do other work at the same time give large numbers for all.

#[cfg(unix)]
fn main() {
    unix::main();
}

#[cfg(not(unix))]
fn main() {
    println!("measures on Unix only");
}

#[cfg(unix)]
mod unix {
    use std::hint::{black_box, spin_loop};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use paralight::prelude::*;
    use uform_c::executors::{Executor, Mood};

    const ROUNDS: usize = 40;
    /// How long a contender warms up and is measured in one round.
    const WARM_UP: Duration = Duration::from_millis(5);
    const MEASURED: Duration = Duration::from_millis(15);
    /// Fork-joins between two looks at the clock.
    const BATCH: u32 = 25;

    /// What each thread does in a fork-join.
    #[derive(Clone, Copy)]
    enum Body {
        /// Nothing: what remains is the dispatch.
        Empty,
        /// Waits until all threads are there, so that none can do the work of another.
        Meeting,
    }

    /// Where threads meet, as often as they like.
    struct Meeting {
        threads: usize,
        arrived: AtomicUsize,
    }

    impl Meeting {
        fn attend(&self, body: Body) {
            if let Body::Meeting = body {
                let ticket = self.arrived.fetch_add(1, Ordering::AcqRel);
                let all = (ticket / self.threads + 1) * self.threads;
                let mut rounds = 0u32;
                while self.arrived.load(Ordering::Acquire) < all {
                    spin_loop();
                    rounds += 1;
                    if rounds.is_multiple_of(500) {
                        std::thread::yield_now();
                    }
                }
            } else {
                black_box(self);
            }
        }
    }

    /// The times of fork-joins, each the mean of a batch, once warmed up. Batches that the system interrupts are few, so
    /// that the median leaves them out.
    fn times(mut fork_join: impl FnMut()) -> Vec<Duration> {
        let mut batch = || {
            let start = Instant::now();
            (0..BATCH).for_each(|_| fork_join());
            start.elapsed() / BATCH
        };
        let begin = Instant::now();
        while begin.elapsed() < WARM_UP {
            batch();
        }
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < MEASURED {
            times.push(batch());
        }
        times
    }

    fn ours(threads: usize, body: Body, meeting: &Meeting) -> Vec<Duration> {
        let executor = Executor::for_ram(&[], None, threads, 0).unwrap();
        executor.drain(Mood::Spinning).unwrap();
        let measure = |context: &uform_c::executors::Context| {
            Ok(times(|| context.team.run(threads, &|_, _| meeting.attend(body)).unwrap()))
        };
        executor.run(measure).unwrap()
    }

    fn of_rayon(threads: usize, body: Body, meeting: &Meeting) -> Vec<Duration> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            times(|| {
                rayon::broadcast(|_| meeting.attend(body));
            })
        })
    }

    fn of_forkunion(threads: usize, body: Body, meeting: &Meeting) -> Vec<Duration> {
        let topology = forkunion::Topology::new().unwrap();
        let mut pool = forkunion::spawn(&topology, threads);
        times(|| {
            pool.for_threads(&|_, _| meeting.attend(body));
        })
    }

    fn of_paralight(threads: usize, body: Body, meeting: &Meeting) -> Vec<Duration> {
        let mut pool = ThreadPoolBuilder {
            num_threads: ThreadCount::Count(threads.try_into().unwrap()),
            range_strategy: RangeStrategy::Fixed,
            cpu_pinning: CpuPinningPolicy::No,
        }
        .build();
        times(|| (0..threads).into_par_iter().with_thread_pool(&mut pool).for_each(|_| meeting.attend(body)))
    }

    type Contender = (&'static str, fn(usize, Body, &Meeting) -> Vec<Duration>);
    const CONTENDERS: [Contender; 4] =
        [("uform", ours), ("rayon", of_rayon), ("forkunion", of_forkunion), ("paralight", of_paralight)];

    fn median(mut times: Vec<Duration>) -> Duration {
        times.sort();
        times[times.len() / 2]
    }

    /// Each contender's median over rounds in which all take turns, every one with the machine to itself.
    fn compare(threads: usize, name: &str, body: Body) {
        let meeting = Meeting { threads, arrived: AtomicUsize::new(0) };
        let mut times: Vec<Vec<Duration>> = vec![Vec::new(); CONTENDERS.len()];
        for _ in 0..ROUNDS {
            for ((_, measure), times) in CONTENDERS.iter().zip(&mut times) {
                times.extend(measure(threads, body, &meeting));
            }
        }
        let medians: Vec<Duration> = times.into_iter().map(median).collect();
        println!("{name}, {threads} threads, spinning:");
        for ((name, _), median) in CONTENDERS.iter().zip(&medians) {
            println!("  {name:10} {:8.3} µs", median.as_secs_f64() * 1e6);
        }
        let best = medians[1..].iter().min().unwrap();
        let ratio = medians[0].as_secs_f64() / best.as_secs_f64();
        println!(
            "  ours to the best of the others: {ratio:.2} (goal: at most 1.25, {})",
            verdict(ratio <= 1.25)
        );
    }

    fn verdict(met: bool) -> &'static str {
        if met { "met" } else { "missed" }
    }

    /// The time from a call on a sleeping executor to all of its threads having met in it.
    fn waking(threads: usize) {
        let executor = Executor::for_ram(&[], None, threads, 0).unwrap();
        let meeting = Meeting { threads, arrived: AtomicUsize::new(0) };
        let times = (0..200).map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            executor.run(|context| context.team.run(threads, &|_, _| meeting.attend(Body::Meeting))).unwrap();
            start.elapsed()
        });
        let median = median(times.collect());
        let verdict = verdict(median <= Duration::from_micros(100));
        println!(
            "waking {threads} parked threads: {:.1} µs (goal: at most 100, {verdict})",
            median.as_secs_f64() * 1e6
        );
    }

    /// The time from waking a sleeping thread to seeing what it does: what the system itself takes.
    fn waking_bare() {
        let turn = Arc::new(AtomicUsize::new(0));
        let seen = turn.clone();
        const ROUNDS: usize = 200;
        let sleeper = std::thread::spawn(move || {
            for round in 0..ROUNDS {
                while seen.load(Ordering::Acquire) == 2 * round {
                    std::thread::park();
                }
                seen.fetch_add(1, Ordering::Release);
            }
        });
        let times = (0..ROUNDS).map(|round| {
            std::thread::sleep(Duration::from_millis(5));
            let start = Instant::now();
            turn.fetch_add(1, Ordering::Release);
            sleeper.thread().unpark();
            while turn.load(Ordering::Acquire) != 2 * round + 2 {
                spin_loop();
            }
            start.elapsed()
        });
        println!("waking a bare thread: {:.1} µs", median(times.collect()).as_secs_f64() * 1e6);
        sleeper.join().unwrap();
    }

    fn cpu_time() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock exists on every Unix and the time is ours to write.
        let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
        assert_eq!(status, 0);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// The CPU time that a parked executor takes in ten seconds.
    fn idling(threads: usize) {
        let executor = Executor::for_ram(&[], None, threads, 0).unwrap();
        executor.run(|context| context.team.run(threads, &|_, _| {})).unwrap();
        executor.defer(Box::new(|_| Ok(()))).unwrap().wait(-1.0).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let before = cpu_time();
        std::thread::sleep(Duration::from_secs(10));
        let used = cpu_time() - before;
        let verdict = verdict(used < Duration::from_millis(1));
        println!(
            "a parked executor in ten seconds: {:.3} ms of CPU (goal: 0, {verdict})",
            used.as_secs_f64() * 1e3
        );
    }

    pub(super) fn main() {
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get()).max(2);
        compare(threads, "empty tasks", Body::Empty);
        compare(threads, "tasks that wait for each other", Body::Meeting);
        waking(threads);
        waking_bare();
        idling(threads);
    }
}
