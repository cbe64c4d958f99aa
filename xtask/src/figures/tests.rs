use tempfile::TempDir;

use super::*;

/// Runs Git in a folder, without settings of the user.
fn run_git(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
        .args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Makes a project of several commits, and returns it with the first commit.
fn project(commits: usize) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path();
    run_git(path, &["init", "-q", "-b", "main"]);
    for _ in 0..commits {
        run_git(path, &["commit", "-q", "--allow-empty", "-m", "more"]);
    }
    let first = run_git(path, &["rev-list", "--max-parents=0", "HEAD"]);
    fs::create_dir_all(path.join("docs")).unwrap();
    fs::create_dir_all(path.join("interop")).unwrap();
    for page in PAGES {
        fs::write(path.join(page), "").unwrap();
    }
    (folder, first)
}

fn line(commit: &str) -> String {
    format!("<!-- figures: make | {commit} | 2026-11-24 | a machine -->\n\n| n |\n| ---: |\n| 1 |\n")
}

#[test]
fn the_age_is_a_number_of_commits() {
    let (folder, first) = project(4);
    let age = |commit| age(folder.path(), &commit, true);
    assert_eq!(age(Commit::Measured(first.clone())), Age::Commits(3));
    assert_eq!(age(Commit::Written(first[..9].to_owned())), Age::Commits(3));
    assert_eq!(age(Commit::Unknown), Age::NotRecorded);
    assert_eq!(age(Commit::Measured("0123456789".to_owned())), Age::Foreign);
}

#[test]
fn a_commit_of_another_branch_is_foreign() {
    let (folder, _) = project(1);
    run_git(folder.path(), &["checkout", "-q", "-b", "other"]);
    run_git(folder.path(), &["commit", "-q", "--allow-empty", "-m", "aside"]);
    let aside = run_git(folder.path(), &["rev-parse", "HEAD"]);
    run_git(folder.path(), &["checkout", "-q", "main"]);
    assert_eq!(age(folder.path(), &Commit::Measured(aside), true), Age::Foreign);
}

#[test]
fn figures_without_origin_or_of_an_unknown_commit_are_faults() {
    let (folder, first) = project(2);
    let page = folder.path().join("docs/speed.md");
    for (text, good) in [
        (line(&first), true),
        (line("not recorded"), true),
        (line("0123456789"), false),
        (line(&first).replace("<!--", "<!- -"), false),
        (line("HEAD"), false),
    ] {
        fs::write(&page, &text).unwrap();
        assert_eq!(check(folder.path()).unwrap(), good, "{text}");
    }
}

#[test]
fn a_shallow_clone_is_no_fault() {
    let (origin, first) = project(3);
    let folder = TempDir::new().unwrap();
    let url = format!("file://{}", origin.path().display());
    run_git(folder.path(), &["clone", "-q", "--depth", "1", &url, "clone"]);
    let clone = folder.path().join("clone");
    assert_eq!(age(&clone, &Commit::Measured(first.clone()), false), Age::Unseen);
    for folder in ["docs", "interop"] {
        fs::create_dir_all(clone.join(folder)).unwrap();
    }
    for page in PAGES {
        fs::write(clone.join(page), line(&first)).unwrap();
    }
    assert!(check(&clone).unwrap());
    fs::write(clone.join("README.md"), "```text\n1\n```\n").unwrap();
    assert!(!check(&clone).unwrap(), "the form is checked there too");
}

#[test]
fn figures_of_now_have_the_commit_of_now() {
    let (folder, _) = project(1);
    let origin = origin(folder.path(), "make", "a machine");
    let head = run_git(folder.path(), &["rev-parse", "--short", "HEAD"]);
    assert_eq!(origin.commit, Commit::Measured(head));
    let page = format!("{origin}\n\n```text\n1\n```\n");
    fs::write(folder.path().join("README.md"), page).unwrap();
    assert!(check(folder.path()).unwrap());
}

#[test]
fn figures_of_files_without_a_commit_are_refused() {
    let (folder, _) = project(1);
    let path = folder.path();
    let refused = || ensure_committed(path, &["README.md"]).map_err(|failure| failure.to_string());
    fs::write(path.join("code.rs"), "").unwrap();
    run_git(path, &["add", "."]);
    assert!(refused().unwrap_err().contains("code.rs"), "staged");
    run_git(path, &["commit", "-q", "-m", "code"]);
    assert_eq!(refused(), Ok(()));
    fs::write(path.join("README.md"), "the table of before").unwrap();
    assert_eq!(refused(), Ok(()), "the command writes this page itself");
    let head = run_git(path, &["rev-parse", "--short", "HEAD"]);
    assert_eq!(origin(path, "make", "a machine").commit, Commit::Measured(head));
    fs::write(path.join("ARCHITECTURE.md"), "another page").unwrap();
    assert!(refused().unwrap_err().contains("ARCHITECTURE.md"));
    fs::write(path.join("ARCHITECTURE.md"), "").unwrap();
    fs::write(path.join("docs/new.rs"), "").unwrap();
    assert!(refused().unwrap_err().contains("docs/new.rs"), "no commit has it");
    fs::remove_file(path.join("docs/new.rs")).unwrap();
    fs::write(path.join("code.rs"), "changed").unwrap();
    assert!(refused().unwrap_err().contains("code.rs"));
    let none = TempDir::new().unwrap();
    assert!(ensure_committed(none.path(), &[]).is_ok(), "no repository, so no commit is named");
}

#[test]
fn old_figures_are_told() {
    assert_eq!(Age::Commits(51).to_string(), "51 commits old");
    assert_eq!(Age::NotRecorded.to_string(), "no commit recorded");
}
