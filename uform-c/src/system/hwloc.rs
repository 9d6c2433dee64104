//! What hwloc knows of memory domains and cores, and the binding of memory to domains.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::OnceLock;

use hwlocality::Topology as Hwloc;
use hwlocality::bitmap::BitmapIndex;
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::memory::binding::{MemoryBindingFlags, MemoryBindingPolicy};
use hwlocality::memory::nodeset::NodeSet;
use hwlocality::object::types::ObjectType;

use super::budget::Budget;
use super::topology::{CoreCpus, Domain, Topology};

/// This machine as hwloc sees it, looked at once; `None` where it cannot.
fn machine() -> Option<&'static Hwloc> {
    static MACHINE: OnceLock<Option<Hwloc>> = OnceLock::new();
    let load = || {
        let loaded = Hwloc::new();
        if let Err(error) = &loaded {
            crate::base::log::warn(&format!(
                "hwloc cannot read this machine, which is taken for one domain: {error}"
            ));
        }
        loaded.ok()
    };
    MACHINE.get_or_init(load).as_ref()
}

/// The part of this machine that `budget` allows; `None` where hwloc knows no domain or no core of it.
pub(super) fn topology(budget: &Budget) -> Option<Topology> {
    let topology = convert(machine()?, Some(&budget.cpus));
    topology.domains.iter().any(|domain| !domain.cores.is_empty()).then_some(topology)
}

/// What hwloc knows, without the CPUs that are not in `allowed`.
fn convert(hwloc: &Hwloc, allowed: Option<&BTreeSet<usize>>) -> Topology {
    let cpus_of = |set: &CpuSet| -> BTreeSet<usize> {
        let cpus = set.iter_set().map(usize::from);
        cpus.filter(|cpu| allowed.is_none_or(|allowed| allowed.contains(cpu))).collect()
    };
    let cores_in = |set: &CpuSet| -> Vec<CoreCpus> {
        // Where cores are not known, each logical CPU is one.
        let has_cores = hwloc.objects_with_type(ObjectType::Core).len() > 0;
        let kind = if has_cores { ObjectType::Core } else { ObjectType::PU };
        let inside = hwloc.objects_with_type(kind).filter_map(|core| core.cpuset());
        let cores = inside.filter(|core| set.intersects(core.deref())).map(|core| cpus_of(&core));
        cores.filter(|core| !core.is_empty()).collect()
    };
    let mut domains: Vec<Domain> = hwloc
        .objects_with_type(ObjectType::NUMANode)
        .filter_map(|node| {
            let number = i32::try_from(node.os_index()?).ok()?;
            let cores = node.cpuset().map(|set| cores_in(&set)).unwrap_or_default();
            Some(Domain { number, cores })
        })
        .collect();
    domains.sort_by_key(|domain| domain.number);
    Topology { domains }
}

/// Spreads the pages of `memory`, which nobody has touched yet, over `domains`: bound to the one, interleaved over several.
/// Only a hint: a system that refuses puts pages where it likes.
pub(super) fn bind(memory: &[u8], domains: &[i32]) {
    let Some(hwloc) = machine() else { return };
    let known = hwloc.nodeset();
    if domains.is_empty() || known.weight().is_some_and(|weight| weight < 2) {
        return;
    }
    let nodes: NodeSet = domains
        .iter()
        .filter_map(|domain| BitmapIndex::try_from(usize::try_from(*domain).ok()?).ok())
        .filter(|node| known.is_set(*node))
        .collect();
    let policy = if domains.len() == 1 { MemoryBindingPolicy::Bind } else { MemoryBindingPolicy::Interleave };
    if let Err(error) = hwloc.bind_memory_area(memory, &nodes, policy, MemoryBindingFlags::empty()) {
        crate::base::log::warn(&format!("memory could not be placed in domains {domains:?}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use hwlocality::topology::editor::RestrictFlags;

    use super::super::topology::{Seat, count_cores, place};
    use super::*;

    fn synthetic(description: &str) -> Hwloc {
        Hwloc::builder().from_synthetic(description).unwrap().build().unwrap()
    }

    fn cores(topology: &Topology) -> Vec<usize> {
        topology.domains.iter().map(|domain| domain.cores.len()).collect()
    }

    /// The domains of the seats for `threads` threads in the domains of those numbers.
    fn seats(topology: &Topology, numbers: &[i32], threads: usize) -> Vec<Seat> {
        let chosen = topology.choose(numbers).unwrap();
        place(&topology.with_cores(&chosen), threads)
    }

    fn domains(seats: &[Seat]) -> Vec<i32> {
        seats.iter().map(|seat| seat.domain).collect()
    }

    #[test]
    fn two_domains_take_threads_in_turn() {
        let topology = convert(&synthetic("numa:2 l3:1 core:4 pu:2"), None);
        assert_eq!(cores(&topology), [4, 4]);
        assert!(topology.domains.iter().flat_map(|domain| &domain.cores).all(|core| core.len() == 2));
        let seats = seats(&topology, &[], 5);
        assert_eq!(domains(&seats), [0, 1, 0, 1, 0]);
        assert_eq!(seats[0].cpus, (0..8).collect());
        assert_eq!(seats[1].cpus, (8..16).collect());
    }

    #[test]
    fn four_domains_and_a_choice_of_them() {
        let topology = convert(&synthetic("package:2 numa:2 core:2 pu:1"), None);
        assert_eq!(cores(&topology), [2, 2, 2, 2]);
        assert_eq!(domains(&seats(&topology, &[], 7)), [0, 1, 2, 3, 0, 1, 2]);
        assert_eq!(domains(&seats(&topology, &[3, 1, 3], 3)), [3, 1, 3]);
        assert_eq!(count_cores(&topology.choose(&[3, 1]).unwrap()), 4);
        let error = topology.choose(&[2, 4]).unwrap_err();
        assert_eq!(error.status, crate::base::Status::InvalidArgument);
        assert!(
            error.message.contains("memory domain 4") && error.message.ends_with("0, 1, 2, 3"),
            "{error}"
        );
    }

    #[test]
    fn uneven_domains_fill_up_and_more_threads_than_cores_start_again() {
        // Only the first core of the second domain is allowed.
        let allowed = (0..5).collect();
        let topology = convert(&synthetic("numa:2 core:4 pu:1"), Some(&allowed));
        assert_eq!(cores(&topology), [4, 1]);
        let seats = seats(&topology, &[], 8);
        assert_eq!(domains(&seats), [0, 1, 0, 0, 0, 0, 1, 0]);
        assert_eq!(seats[1].cpus, BTreeSet::from([4]));
        assert!(seats.iter().all(|seat| seat.cpus.is_subset(&allowed)));
    }

    #[test]
    fn a_domain_without_cores_gives_memory_and_takes_no_threads() {
        let mut hwloc = synthetic("numa:3 core:2 pu:1");
        let keep: CpuSet =
            [0usize, 1, 4, 5].into_iter().map(|cpu| BitmapIndex::try_from(cpu).unwrap()).collect();
        hwloc.edit(|editor| editor.restrict(&keep, RestrictFlags::empty())).unwrap();
        let topology = convert(&hwloc, None);
        assert_eq!(cores(&topology), [2, 0, 2]);
        assert_eq!(domains(&seats(&topology, &[], 4)), [0, 2, 0, 2]);
        assert_eq!(domains(&seats(&topology, &[1, 2], 2)), [2, 2]);
        // With nothing but such memory, the threads are wherever there are cores.
        assert_eq!(domains(&seats(&topology, &[1], 3)), [0, 2, 0]);
    }

    #[test]
    fn memory_that_shares_its_processors_does_not_double_them() {
        let topology = convert(&synthetic("[numa] [numa] core:4 pu:1"), None);
        assert_eq!(cores(&topology), [4, 4]);
        let all = topology.choose(&[]).unwrap();
        assert_eq!(count_cores(&all), 4);
        assert_eq!(domains(&seats(&topology, &[], 4)), [0, 1, 0, 1]);
    }

    #[test]
    fn a_restricted_cpuset_keeps_threads_inside() {
        let allowed = BTreeSet::from([1, 2, 3, 12]);
        let topology = convert(&synthetic("numa:2 core:4 pu:2"), Some(&allowed));
        // CPU 1 is half of a core, 2 and 3 are one, and 12 is half of one in the other domain.
        assert_eq!(cores(&topology), [2, 1]);
        let seats = seats(&topology, &[], 3);
        assert_eq!(domains(&seats), [0, 1, 0]);
        assert!(seats.iter().all(|seat| seat.cpus.is_subset(&allowed)));
    }

    #[test]
    fn this_machine_has_the_cores_of_its_budget() {
        let budget = Budget::of_process();
        let topology = topology(&budget).unwrap();
        let cpus: BTreeSet<usize> =
            topology.domains.iter().flat_map(|domain| &domain.cores).flatten().copied().collect();
        assert_eq!(cpus, budget.cpus);
    }
}
