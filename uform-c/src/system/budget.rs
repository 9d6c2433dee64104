//! How many CPUs this process may use: its affinity, the cpuset of its control group, and the quotas of that group and
//! of every group above it, in both versions of control groups. Whatever cannot be read sets no limit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// What this process may use of the machine's CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    /// The logical CPUs that its threads may run on, by the system's numbers; never empty.
    pub cpus: BTreeSet<usize>,
    /// Whole CPUs' worth of time that the quota allows, at least one; `None` without a quota.
    pub quota: Option<usize>,
}

impl Budget {
    /// The budget of this process now. Any thread.
    pub fn of_process() -> Self {
        Self::in_tree(Path::new("/"), affinity())
    }

    /// The budget by the files under `root` for a process whose affinity is `affinity`. Without any knowledge of CPUs
    /// they are those that the standard library counts.
    pub fn in_tree(root: &Path, affinity: Option<BTreeSet<usize>>) -> Self {
        let groups = groups(root);
        let sets = groups.iter().filter_map(Group::cpuset);
        // Sets that exclude each other were read at different times; the first one stands then.
        let cpus = affinity.into_iter().chain(sets).reduce(|all, set| {
            let both: BTreeSet<usize> = all.intersection(&set).copied().collect();
            if both.is_empty() { all } else { both }
        });
        let cpus = cpus.filter(|cpus| !cpus.is_empty()).unwrap_or_else(counted);
        let quota = groups.iter().filter_map(Group::quota).min();
        Self { cpus, quota }
    }

    /// The most threads that can compute at once without waiting for each other, when each takes one of `cores`.
    pub fn limit(&self, cores: usize) -> usize {
        cores.min(self.quota.unwrap_or(cores)).max(1)
    }
}

/// As many CPUs as the standard library counts.
fn counted() -> BTreeSet<usize> {
    (0..std::thread::available_parallelism().map_or(1, |count| count.get())).collect()
}

/// The CPUs that the calling thread may run on.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn affinity() -> Option<BTreeSet<usize>> {
    let mut words = 16;
    loop {
        let mut mask = vec![0u64; words];
        // SAFETY: the kernel writes at most the given number of bytes into the mask, which is aligned to its words.
        let status = unsafe { libc::sched_getaffinity(0, words * 8, mask.as_mut_ptr().cast()) };
        if status == 0 {
            return Some((0..words * 64).filter(|cpu| mask[cpu / 64] >> (cpu % 64) & 1 == 1).collect());
        }
        // The kernel refuses masks that are shorter than its own.
        let too_short = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
        if !too_short || words >= 1 << 14 {
            return None;
        }
        words *= 2;
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn affinity() -> Option<BTreeSet<usize>> {
    None
}

/// One control group that limits this process, in one mounted hierarchy.
struct Group {
    directory: PathBuf,
    unified: bool,
}

impl Group {
    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(name)).ok()
    }

    /// The CPUs of its cpuset, if it has one.
    fn cpuset(&self) -> Option<BTreeSet<usize>> {
        let names = if self.unified {
            ["cpuset.cpus.effective"; 2]
        } else {
            ["cpuset.effective_cpus", "cpuset.cpus"]
        };
        let set = names.iter().find_map(|name| parse_cpus(&self.read(name)?))?;
        (!set.is_empty()).then_some(set)
    }

    /// The whole CPUs of its quota, at least one.
    fn quota(&self) -> Option<usize> {
        let (quota, period) = if self.unified {
            let text = self.read("cpu.max")?;
            let mut words = text.split_ascii_whitespace();
            (
                words.next()?.parse::<u64>().ok()?,
                words.next().map_or(Some(100_000), |period| period.parse().ok())?,
            )
        } else {
            let number = |name| self.read(name)?.trim().parse::<i64>().ok();
            (
                u64::try_from(number("cpu.cfs_quota_us")?).ok()?,
                u64::try_from(number("cpu.cfs_period_us")?).ok()?,
            )
        };
        let whole = quota.checked_div(period)?.max(1);
        Some(usize::try_from(whole).unwrap_or(usize::MAX))
    }
}

/// A set of CPUs as the kernel writes it: `0-3,8`.
pub(super) fn parse_cpus(text: &str) -> Option<BTreeSet<usize>> {
    const MOST: usize = 1 << 20;
    let mut cpus = BTreeSet::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        if last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The groups that limit this process: in each hierarchy its own and all above it, as far as they are mounted.
fn groups(root: &Path) -> Vec<Group> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (memberships, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut groups = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(path) = memberships.lines().find_map(|line| mount.membership(line)) else { continue };
        // The mount shows the hierarchy from `mount.root` down; a path outside of that is one that this process
        // cannot see, so that what is mounted is its own group.
        let below = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let visible = below.components().all(|part| matches!(part, Component::Normal(_)));
        let below = if visible { below } else { Path::new("") };
        let mounted = root.join(mount.point.trim_start_matches('/'));
        groups.extend(
            below
                .ancestors()
                .map(|part| Group { directory: mounted.join(part), unified: mount.controllers.is_none() }),
        );
    }
    groups
}

/// A mounted hierarchy of control groups.
struct Mount {
    root: String,
    point: String,
    /// The controllers of a hierarchy of version 1; the one of version 2 has none to itself.
    controllers: Option<String>,
}

impl Mount {
    /// Reads a line of /proc/self/mountinfo (proc_pid_mountinfo(5)), if it is about a hierarchy that may limit CPUs.
    fn parse(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (unescape(fields.next()?), unescape(fields.next()?));
        let mut fields = system.split(' ');
        let controllers = match fields.next()? {
            "cgroup2" => None,
            "cgroup" => Some(fields.nth(1)?.to_string()),
            _ => return None,
        };
        let limits = |name: &str| name == "cpu" || name == "cpuset";
        let relevant = controllers.as_ref().is_none_or(|names| names.split(',').any(limits));
        relevant.then_some(Self { root, point, controllers })
    }

    /// The path of this process's group in this hierarchy, if `line` of /proc/self/cgroup (cgroups(7)) says it.
    fn membership<'line>(&self, line: &'line str) -> Option<&'line str> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match &self.controllers {
            None => number == "0" && controllers.is_empty(),
            Some(mounted) => {
                let mounted: Vec<&str> = mounted.split(',').collect();
                !controllers.is_empty()
                    && controllers.split(',').all(|controller| mounted.contains(&controller))
            }
        };
        ours.then_some(path)
    }
}

/// Undoes the kernel's `\040` for a blank and the like.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = (byte == b'\\')
            .then(|| after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok()))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root directory with these files in it.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn budget(files: &[(&str, &str)], affinity: &[usize]) -> Budget {
        Budget::in_tree(tree(files).path(), Some(affinity.iter().copied().collect()))
    }

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const EIGHT: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7];

    #[test]
    fn without_any_file_the_affinity_stands() {
        let budget = budget(&[], &[3, 5]);
        assert_eq!(budget, Budget { cpus: BTreeSet::from([3, 5]), quota: None });
        assert_eq!((budget.limit(2), budget.limit(0)), (2, 1));
    }

    #[test]
    fn without_files_and_affinity_the_standard_library_counts() {
        let counted = std::thread::available_parallelism().unwrap().get();
        assert_eq!(Budget::in_tree(tree(&[]).path(), None).cpus.len(), counted);
    }

    #[test]
    fn the_least_quota_on_the_way_up_counts_and_fractions_round_down() {
        let group = "0::/host/job\n";
        let with = |own: &str, above: &str| {
            let files = [
                ("proc/self/cgroup", group),
                ("proc/self/mountinfo", UNIFIED),
                ("sys/fs/cgroup/host/job/cpu.max", own),
                ("sys/fs/cgroup/host/cpu.max", above),
            ];
            budget(&files, EIGHT).quota
        };
        assert_eq!(with("max 100000\n", "max 100000\n"), None);
        assert_eq!(with("400000 100000\n", "max 100000\n"), Some(4));
        assert_eq!(with("400000 100000\n", "250000 100000\n"), Some(2));
        assert_eq!(with("50000 100000\n", "max 100000\n"), Some(1));
        assert_eq!(with("199999 100000\n", "800000 100000\n"), Some(1));
        assert_eq!(with("300000\n", "max\n"), Some(3));
        assert_eq!(with("300000 0\n", "nonsense\n"), None);
    }

    #[test]
    fn a_container_sees_its_own_group_at_the_mount_point() {
        // The path of the group lies outside of what is mounted, so that it cannot be followed.
        for path in ["0::/\n", "0::/docker/abc\n", "0::/../../elsewhere\n"] {
            let files = [
                ("proc/self/cgroup", path),
                ("proc/self/mountinfo", "30 23 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"),
                ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
                ("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
            ];
            let budget = budget(&files, EIGHT);
            assert_eq!((budget.quota, budget.cpus.len()), (Some(2), 4), "{path}");
        }
    }

    #[test]
    fn version_one_has_its_own_files_and_hierarchies() {
        let files = [
            ("proc/self/cgroup", "7:cpuset:/box\n4:cpu,cpuacct:/box/inner\n1:name=systemd:/init\n0::/init\n"),
            (
                "proc/self/mountinfo",
                "33 32 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n\
                 34 32 0:30 / /sys/fs/cgroup/cpu\\040set rw - cgroup cgroup rw,cpuset\n\
                 35 32 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                 36 32 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                 20 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
            ),
            ("sys/fs/cgroup/cpu,cpuacct/box/inner/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/box/inner/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "350000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu set/box/cpuset.cpus", "1-2,6\n"),
        ];
        let budget = budget(&files, EIGHT);
        assert_eq!(budget, Budget { cpus: BTreeSet::from([1, 2, 6]), quota: Some(3) });
    }

    #[test]
    fn affinity_and_cpuset_both_limit_but_never_to_nothing() {
        let files = [
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", UNIFIED),
            ("sys/fs/cgroup/a/cpuset.cpus.effective", "2-5\n"),
        ];
        assert_eq!(budget(&files, &[4, 5, 6]).cpus, BTreeSet::from([4, 5]));
        assert_eq!(budget(&files, &[7]).cpus, BTreeSet::from([7]));
    }

    #[test]
    fn sets_of_cpus_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpus("0-2,8,10-11\n"), Some(BTreeSet::from([0, 1, 2, 8, 10, 11])));
        assert_eq!(parse_cpus("\n"), Some(BTreeSet::new()));
        assert_eq!(parse_cpus("1-"), None);
        assert_eq!(parse_cpus("0-99999999999"), None);
        assert_eq!(unescape("/a\\040b\\134c\\9"), "/a b\\c\\9");
    }

    #[test]
    fn this_process_has_cpus() {
        let budget = Budget::of_process();
        assert!(!budget.cpus.is_empty() && budget.limit(budget.cpus.len()) >= 1);
        #[cfg(target_os = "linux")]
        assert!(budget.limit(budget.cpus.len()) <= std::thread::available_parallelism().unwrap().get());
    }
}
