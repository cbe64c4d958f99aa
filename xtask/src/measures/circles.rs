//! Import circles between the modules of a folder.
//!
//! At each level (a folder below `src`) the nodes are its subfolders and its modules of one file. A subfolder
//! and the file of its name are one node. The root of the level (`lib.rs`, `mod.rs`, or `foo.rs` for `foo/`) is
//! no node. An arrow leads from a node to another if a file of the first names something of the second
//! outside of tests. A circle is a strongly connected component of two nodes or more with at least one folder
//! in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::names::{Module, Names, Use};
use crate::source::Tree;

/// The doors of `rpcrdma-proto`, by level. They hook into the engine by their nature. The build without them
/// proves that nothing else needs them.
const DOORS: [(&str, &str); 3] = [("", "two"), ("", "retired"), ("wire", "two")];

/// A circle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Circle {
    pub(crate) package: String,
    /// Folder below `src`, empty for `src` itself.
    pub(crate) level: String,
    pub(crate) nodes: BTreeSet<String>,
    /// For each arrow of the circle one place that draws it.
    pub(crate) arrows: Vec<String>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<&str> = self.nodes.iter().map(String::as_str).collect();
        write!(f, "{}: {}/{{{}}}", self.package, self.level, nodes.join(", "))
    }
}

/// A circle that is allowed until it is gone: package, level and nodes.
pub(crate) type Exception = (&'static str, &'static str, &'static [&'static str]);

/// Returns the circles of a crate.
pub(crate) fn circles(package: &str, tree: &Tree) -> Vec<Circle> {
    let folders: BTreeSet<&[String]> =
        tree.files.iter().filter_map(|file| file.module.split_last().map(|(_, folder)| folder)).collect();
    let names = Names::of(tree);
    let mut levels: BTreeMap<Module, BTreeMap<(String, String), Use>> = BTreeMap::new();
    for used in names.uses(tree) {
        let common = used.from.iter().zip(&used.to).take_while(|(from, to)| from == to).count();
        let (Some(from), Some(to)) = (used.from.get(common), used.to.get(common)) else { continue };
        let level = used.from.get(..common).unwrap_or_default().to_vec();
        let is_door = |node: &str| package == "proto" && DOORS.contains(&(level.join("/").as_str(), node));
        if is_door(from) || is_door(to) {
            continue;
        }
        let arrow = (from.clone(), to.clone());
        levels.entry(level).or_default().entry(arrow).or_insert(used);
    }
    let mut circles = Vec::new();
    for (level, arrows) in &levels {
        for nodes in components(&arrows.keys().cloned().collect()) {
            let is_folder = |node: &String| {
                let mut folder = level.clone();
                folder.push(node.clone());
                folders.contains(folder.as_slice())
            };
            if nodes.iter().any(is_folder) {
                let within = |arrow: &&(String, String)| nodes.contains(&arrow.0) && nodes.contains(&arrow.1);
                let arrows = arrows.iter().filter(|(arrow, _)| within(arrow));
                let arrows = arrows
                    .map(|((from, to), used)| format!("{from} -> {to} ({}:{})", used.at.0, used.at.1))
                    .collect();
                circles.push(Circle { package: package.to_owned(), level: level.join("/"), nodes, arrows });
            }
        }
    }
    circles
}

/// Returns the strongly connected components of at least two nodes.
fn components(arrows: &BTreeSet<(String, String)>) -> Vec<BTreeSet<String>> {
    let nodes: BTreeSet<&String> = arrows.iter().flat_map(|(from, to)| [from, to]).collect();
    let reached = |start: &String| {
        let mut reached: BTreeSet<String> = BTreeSet::new();
        let mut open = vec![start.clone()];
        while let Some(node) = open.pop() {
            for (_, to) in arrows.iter().filter(|(from, _)| *from == node) {
                if reached.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        reached
    };
    let reach: BTreeMap<&String, BTreeSet<String>> =
        nodes.iter().map(|node| (*node, reached(node))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (node, there) in &reach {
        let back = |other: &&String| reach.get(other).is_some_and(|back| back.contains(*node));
        let component: BTreeSet<String> = there.iter().filter(back).cloned().collect();
        if component.len() > 1 {
            found.insert(component);
        }
    }
    found.into_iter().collect()
}

/// Compares the circles with those that are allowed, and returns the faults.
pub(crate) fn compare(circles: &[Circle], exceptions: &[Exception]) -> Vec<String> {
    let mut faults = Vec::new();
    let allows = |(package, level, nodes): &Exception, circle: &Circle| {
        *package == circle.package
            && *level == circle.level
            && circle.nodes.iter().all(|node| nodes.contains(&node.as_str()))
    };
    for circle in circles {
        if !exceptions.iter().any(|exception| allows(exception, circle)) {
            faults.push(format!("a new import circle: {circle}: {}", circle.arrows.join(", ")));
        }
    }
    for exception in exceptions {
        let within = circles.iter().filter(|circle| allows(exception, circle));
        let left: BTreeSet<&String> = within.flat_map(|circle| &circle.nodes).collect();
        let gone: Vec<&str> =
            exception.2.iter().copied().filter(|node| !left.contains(&(*node).to_owned())).collect();
        if left.is_empty() {
            let (package, level, nodes) = exception;
            let nodes = nodes.join(", ");
            faults.push(format!(
                "{package}: {level}/{{{nodes}}} is no circle any more: remove it from the list"
            ));
        } else if !gone.is_empty() {
            let (package, level, gone) = (exception.0, exception.1, gone.join(", "));
            faults.push(format!("{package}: {level}/: {gone} left the circle: remove it from the list"));
        }
    }
    faults
}

#[cfg(test)]
mod tests;
