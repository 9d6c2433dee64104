//! Models by name in the local Hugging Face cache. Nothing here touches the network.
//!
//! The layout is that of `huggingface_hub`: `models--ORGANIZATION--NAME/refs/main` holds a commit, and
//! `snapshots/COMMIT` the files. The cache is `HF_HUB_CACHE`, else `HF_HOME/hub`, else `~/.cache/huggingface/hub`.

use std::path::{Path, PathBuf};

use crate::base::{Result, err};

/// The directory of the model that `path` names. A bare name also stands for one of the organization
/// `sentence-transformers`, as in that library.
pub(super) fn find(path: &Path) -> Result<PathBuf> {
    let cache =
        cache_folder(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from));
    find_in(cache.as_deref(), path)
}

fn cache_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let home = || variable("HOME").or_else(|| variable("USERPROFILE"));
    let general = || variable("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache")));
    variable("HF_HUB_CACHE")
        .or_else(|| variable("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| variable("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| general().map(|cache| cache.join("huggingface/hub")))
}

fn find_in(cache: Option<&Path>, path: &Path) -> Result<PathBuf> {
    let name = path.to_str().filter(|name| is_model_name(name));
    let (Some(name), Some(cache)) = (name, cache) else {
        return err!(NotFound, "{}: no such file or directory", path.display());
    };
    let candidates = match name.contains('/') {
        true => vec![name.to_owned()],
        false => vec![name.to_owned(), format!("sentence-transformers/{name}")],
    };
    for candidate in &candidates {
        let repository = cache.join(format!("models--{}", candidate.replace('/', "--")));
        if repository.is_dir() {
            return snapshot(&repository);
        }
    }
    err!(NotFound, "{name}: no such directory here, and no such model in the cache {}", cache.display())
}

/// `NAME` or `ORGANIZATION/NAME` in the characters that such names have.
fn is_model_name(name: &str) -> bool {
    let part = |part: &str| {
        let plain =
            |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
        !part.is_empty() && part != "." && part != ".." && part.chars().all(plain)
    };
    name.split('/').count() <= 2 && name.split('/').all(part)
}

/// The files of the commit that `main` stands for.
fn snapshot(repository: &Path) -> Result<PathBuf> {
    let reference = repository.join("refs").join("main");
    let Ok(commit) = std::fs::read_to_string(&reference) else {
        return err!(
            NotFound,
            "{}: expected the commit of the model, found no readable file",
            reference.display()
        );
    };
    let commit = commit.trim();
    if commit.is_empty() || !commit.chars().all(|character| character.is_ascii_alphanumeric()) {
        return err!(CorruptData, "{}: expected a commit, found {commit:?}", reference.display());
    }
    let folder = repository.join("snapshots").join(commit);
    match folder.is_dir() {
        true => Ok(folder),
        false => err!(NotFound, "{}: expected the files of the model, found no directory", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::base::Status;

    #[test]
    fn the_variables_have_an_order() {
        let all = ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"];
        let with = |from: usize| {
            cache_folder(|name| all[from..].contains(&name).then(|| PathBuf::from(format!("/{name}"))))
        };
        assert_eq!(with(0), Some("/HF_HUB_CACHE".into()));
        assert_eq!(with(1), Some("/HF_HOME/hub".into()));
        assert_eq!(with(2), Some("/XDG_CACHE_HOME/huggingface/hub".into()));
        assert_eq!(with(3), Some("/HOME/.cache/huggingface/hub".into()));
        assert_eq!(with(4), None);
    }

    #[test]
    fn names_resolve_to_the_snapshot_of_main() {
        let cache = std::env::temp_dir().join(format!("uform-hub-{}", std::process::id()));
        let repository = cache.join("models--sentence-transformers--tiny");
        let snapshot = repository.join("snapshots/abc123");
        fs::create_dir_all(&snapshot).unwrap();
        fs::create_dir_all(repository.join("refs")).unwrap();
        fs::write(repository.join("refs/main"), "abc123\n").unwrap();
        let find = |name: &str| find_in(Some(&cache), Path::new(name));
        assert_eq!(find("tiny").unwrap(), snapshot);
        assert_eq!(find("sentence-transformers/tiny").unwrap(), snapshot);
        for name in ["other/tiny", "../tiny", "/tiny", "a/b/c", "", "."] {
            assert_eq!(find(name).unwrap_err().status, Status::NotFound, "{name:?}");
        }
        fs::write(repository.join("refs/main"), "../../..").unwrap();
        assert_eq!(find("tiny").unwrap_err().status, Status::CorruptData);
        fs::write(repository.join("refs/main"), "abc124").unwrap();
        assert_eq!(find("tiny").unwrap_err().status, Status::NotFound);
        fs::remove_dir_all(&cache).unwrap();
    }
}
