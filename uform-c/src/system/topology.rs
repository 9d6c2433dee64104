//! The memory domains of the machine, the cores in each that this process may use, and which threads go where.
//! With the feature `numa` hwloc knows them; without it there is one domain that holds all cores.

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::{Result, err};

use super::budget::{Budget, parse_cpus};

/// A physical core: the logical CPUs of it that this process may use.
pub type CoreCpus = BTreeSet<usize>;

/// A memory domain and the cores next to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Domain {
    /// The system's number of it.
    pub number: i32,
    /// The cores next to it that this process may use; none for memory without processors.
    pub cores: Vec<CoreCpus>,
}

/// The part of the machine that this process may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Its memory domains, by number.
    pub domains: Vec<Domain>,
}

/// Where one thread is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The memory domain next to it.
    pub domain: i32,
    /// The logical CPUs that it may run on: those of the domain. Not a single one, since another executor or program
    /// may be busy on that.
    pub cpus: BTreeSet<usize>,
}

impl Topology {
    /// The topology of this machine, as far as `budget` lets this process use it. Any thread.
    pub fn of_machine(budget: &Budget) -> Self {
        #[cfg(all(feature = "numa", not(target_family = "wasm")))]
        if let Some(topology) = super::hwloc::topology(budget) {
            return topology;
        }
        Self::in_tree(Path::new("/"), budget)
    }

    /// One domain with all cores of `budget`. Which logical CPUs are one core, the files under `root` say; where they do
    /// not, each logical CPU is a core.
    pub fn in_tree(root: &Path, budget: &Budget) -> Self {
        let cpus = root.join("sys/devices/system/cpu");
        let mut cores: Vec<CoreCpus> = Vec::new();
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        for &cpu in &budget.cpus {
            if seen.contains(&cpu) {
                continue;
            }
            let path = cpus.join(format!("cpu{cpu}/topology/thread_siblings_list"));
            let siblings =
                std::fs::read_to_string(path).ok().and_then(|text| parse_cpus(&text)).unwrap_or_default();
            let mut core: CoreCpus = siblings.intersection(&budget.cpus).copied().collect();
            core.insert(cpu);
            seen.extend(&core);
            cores.push(core);
        }
        Self { domains: vec![Domain { number: 0, cores }] }
    }

    /// The domains of these numbers, each once, or all for none; `InvalidArgument` with those that there are for an unknown one.
    pub fn choose(&self, numbers: &[i32]) -> Result<Vec<&Domain>> {
        if numbers.is_empty() {
            return Ok(self.domains.iter().collect());
        }
        let mut chosen: Vec<&Domain> = Vec::new();
        for number in numbers {
            let Some(domain) = self.domains.iter().find(|domain| domain.number == *number) else {
                let known: Vec<String> =
                    self.domains.iter().map(|domain| domain.number.to_string()).collect();
                return err!(
                    InvalidArgument,
                    "memory domain {number} is not there; known are {}",
                    known.join(", ")
                );
            };
            if !chosen.iter().any(|other| other.number == *number) {
                chosen.push(domain);
            }
        }
        Ok(chosen)
    }

    /// Where the threads for `chosen` compute: in those domains, or in all where none of them has a core.
    pub fn with_cores<'own>(&'own self, chosen: &[&'own Domain]) -> Vec<&'own Domain> {
        let filled = |domains: &mut dyn Iterator<Item = &'own Domain>| -> Vec<&'own Domain> {
            domains.filter(|domain| !domain.cores.is_empty()).collect()
        };
        let own = filled(&mut chosen.iter().copied());
        if own.is_empty() { filled(&mut self.domains.iter()) } else { own }
    }
}

/// How many different cores `domains` have; memory may share the processors next to it with other memory.
pub fn count_cores(domains: &[&Domain]) -> usize {
    domains.iter().flat_map(|domain| &domain.cores).collect::<BTreeSet<_>>().len()
}

/// Seats for `threads` threads, interleaved over `domains`: each in its turn gets one for every core, until all cores have one,
/// and then again. No seats where there are no cores.
pub fn place(domains: &[&Domain], threads: usize) -> Vec<Seat> {
    let mut seats = Vec::new();
    let mut taken: BTreeSet<&CoreCpus> = BTreeSet::new();
    while seats.len() < threads {
        let before = seats.len();
        for domain in domains {
            let free = domain.cores.iter().find(|core| !taken.contains(core));
            if let Some(core) = free
                && seats.len() < threads
            {
                taken.insert(core);
                seats.push(Seat {
                    domain: domain.number,
                    cpus: domain.cores.iter().flatten().copied().collect(),
                });
            }
        }
        if seats.len() == before {
            if taken.is_empty() {
                break;
            }
            taken.clear();
        }
    }
    seats
}

/// Keeps the calling thread on `cpus`. Only a hint: a system that refuses leaves it where it is.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn pin(cpus: &BTreeSet<usize>) {
    let Some(last) = cpus.last() else { return };
    let mut mask = vec![0u64; last / 64 + 1];
    cpus.iter().for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
    // SAFETY: the kernel reads the given number of bytes of the mask; zero is the calling thread.
    let status = unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) };
    if status != 0 {
        crate::base::log::warn(&format!(
            "a thread could not be kept in its domain: {}",
            std::io::Error::last_os_error()
        ));
    }
}

/// Elsewhere threads stay where the system puts them.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn pin(_cpus: &BTreeSet<usize>) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(cpus: &[usize]) -> Budget {
        Budget { cpus: cpus.iter().copied().collect(), quota: None }
    }

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join("sys/devices/system/cpu").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn siblings_are_one_core_as_far_as_they_are_allowed() {
        let root = tempfile::tempdir().unwrap();
        write(
            root.path(),
            &[
                ("cpu0/topology/thread_siblings_list", "0,2\n"),
                ("cpu1/topology/thread_siblings_list", "1,3\n"),
                ("cpu2/topology/thread_siblings_list", "0,2\n"),
            ],
        );
        let topology = Topology::in_tree(root.path(), &budget(&[0, 1, 2]));
        assert_eq!(topology.domains[0].cores, [BTreeSet::from([0, 2]), BTreeSet::from([1])]);
    }

    #[test]
    fn without_files_each_cpu_is_a_core_of_the_only_domain() {
        let root = tempfile::tempdir().unwrap();
        let topology = Topology::in_tree(root.path(), &budget(&[4, 6, 9]));
        let all = topology.choose(&[]).unwrap();
        assert_eq!((all.len(), count_cores(&all)), (1, 3));
        assert_eq!(topology.choose(&[0, 0]).unwrap().len(), 1);
        assert!(topology.choose(&[1]).unwrap_err().message.ends_with("known are 0"));
        assert!(place(&[], 3).is_empty());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_pinned_thread_stays_where_it_may_and_a_refused_pin_is_no_error() {
        std::thread::spawn(|| {
            let before = Budget::of_process().cpus;
            pin(&BTreeSet::from([100_000]));
            pin(&BTreeSet::new());
            assert_eq!(Budget::of_process().cpus, before);
            let one = BTreeSet::from([*before.last().unwrap()]);
            pin(&one);
            assert_eq!(Budget::of_process().cpus, one);
        })
        .join()
        .unwrap();
    }
}
