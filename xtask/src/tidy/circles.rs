//! Finds circles of modules in each crate: modules that use each other in a circle are really one module.
//!
//! An arrow goes from a file to the file whose items it names, by `use` or by a path that begins with
//! `crate`, `super`, `self` or a child's name; a re-exported name is followed to its origin. A parent's use
//! of its own children is no arrow, as it declares them; a child's use of its parent's items is one. Tests
//! may reach anywhere.
//!
//! A necessary arrow is listed with its reason in the root manifest, as long as it closes a circle:
//!
//! ```text
//! [[workspace.metadata.thalweg.circle-arrows]]
//! crate = "ports"
//! from = "live::a"
//! to = "live::b"
//! why = "..."
//! ```
//!
//! This is not a parser: it does not see names that macros make.

mod graph;
mod paths;

use super::{Finding, code, entries, read};
use graph::{Graph, circles};
use paths::{Reference, declared_in_tests, references, without_tests};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The path of a module inside its crate; none for the crate's root.
type ModulePath = Vec<String>;

/// How many re-exports of a name are followed.
const HOPS_MAX: usize = 8;

struct Module {
    file: PathBuf,
    references: Vec<Reference>,
}

type Modules = BTreeMap<ModulePath, Module>;

/// An arrow that may close a circle.
struct Allowed {
    of: String,
    from: String,
    to: String,
}

/// Finds circles in the crates of these folders, and listed arrows that close none.
pub(super) fn check(
    root: &Path,
    folders: &[PathBuf],
    workspace: &toml::Table,
) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let allowed = allowed(workspace)?;
    let mut needed = vec![false; allowed.len()];
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let modules = modules(root, &folder.join("src"))?;
        let mut graph = arrows(&modules);
        for (arrow, needed) in allowed.iter().zip(&mut needed).filter(|(arrow, _)| arrow.of == name) {
            let (from, to) = (path_of(&arrow.from), path_of(&arrow.to));
            let circle =
                circles(&graph).into_iter().find(|circle| circle.contains(&from) && circle.contains(&to));
            *needed = circle.is_some() && graph.get_mut(&from).is_some_and(|uses| uses.remove(&to));
        }
        for circle in circles(&graph) {
            let file = &modules[&circle[0]].file;
            findings.push(Finding::failure(file, 0, in_words(&graph, &circle)));
        }
    }
    for (arrow, _) in allowed.iter().zip(needed).filter(|(_, needed)| !needed) {
        let Allowed { of, from, to } = arrow;
        let message = format!("circle-arrows lists {of}: {from} -> {to}, which closes no circle");
        findings.push(Finding::failure(Path::new("Cargo.toml"), 0, message));
    }
    Ok(findings)
}

/// `[[workspace.metadata.thalweg.circle-arrows]]`; no list means none.
fn allowed(workspace: &toml::Table) -> Result<Vec<Allowed>, String> {
    let list =
        workspace.get("workspace").and_then(|w| w.get("metadata")?.get("thalweg")?.get("circle-arrows"));
    let Some(list) = list else { return Ok(Vec::new()) };
    let one = |entry: &toml::Value| {
        let text = |key: &str| entry.get(key)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        text("why")?;
        Some(Allowed { of: text("crate")?, from: text("from")?, to: text("to")? })
    };
    let list = list.as_array().and_then(|list| list.iter().map(one).collect());
    list.ok_or_else(|| "Cargo.toml: circle-arrows is not a list of { crate, from, to, why }".to_owned())
}

fn path_of(text: &str) -> ModulePath {
    text.split("::").map(str::to_owned).collect()
}

fn name_of(path: &[String]) -> String {
    if path.is_empty() { "the crate's root".to_owned() } else { path.join("::") }
}

/// Each file of a source folder as a module, without its tests.
fn modules(root: &Path, source: &Path) -> Result<Modules, String> {
    let mut texts: BTreeMap<ModulePath, (PathBuf, String)> = BTreeMap::new();
    let mut folders = vec![(source.to_path_buf(), ModulePath::new())];
    while let Some((folder, path)) = folders.pop() {
        if !root.join(&folder).is_dir() {
            continue;
        }
        for (entry, is_folder) in entries(root, &folder)? {
            let name = entry.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let mut path = path.clone();
            if is_folder {
                path.push(name);
                folders.push((entry, path));
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                if !matches!(name.as_str(), "lib" | "main" | "mod") {
                    path.push(name);
                }
                let text = code::blank(&read(root, &entry)?);
                texts.insert(path, (entry, text));
            }
        }
    }
    let tests: Vec<ModulePath> = texts
        .iter()
        .flat_map(|(path, (_, text))| declared_in_tests(text).map(|name| [path.as_slice(), &[name]].concat()))
        .collect();
    texts.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
    let module =
        |(file, text): (PathBuf, String)| Module { references: references(&without_tests(&text)), file };
    Ok(texts.into_iter().map(|(path, text)| (path, module(text))).collect())
}

/// The modules whose items each module uses.
fn arrows(modules: &Modules) -> Graph {
    let uses = |path: &ModulePath, module: &Module| {
        let targets =
            module.references.iter().filter_map(|each| resolve(modules, path, &each.path, HOPS_MAX));
        targets.filter(|target| !target.starts_with(path)).collect()
    };
    modules.iter().map(|(path, module)| (path.clone(), uses(path, module))).collect()
}

/// The module of the item that a path names in a module; `None` for another crate's item.
fn resolve(modules: &Modules, here: &[String], path: &[String], hops: usize) -> Option<ModulePath> {
    let (mut module, mut rest) = match path.first()?.as_str() {
        "crate" => (ModulePath::new(), &path[1..]),
        "self" | "super" => {
            let steps = path.iter().take_while(|step| matches!(step.as_str(), "self" | "super")).count();
            let up = path[..steps].iter().filter(|step| *step == "super").count();
            (here[..here.len().checked_sub(up)?].to_vec(), &path[steps..])
        }
        child => {
            let is_child = modules.contains_key([here, &[child.to_owned()]].concat().as_slice());
            is_child.then(|| (here.to_vec(), path))?
        }
    };
    while let Some((step, behind)) = rest.split_first() {
        module.push(step.clone());
        if !modules.contains_key(&module) {
            module.pop();
            break;
        }
        rest = behind;
    }
    let passed_on = rest.first().filter(|_| hops > 0).and_then(|name| {
        let named = modules.get(&module)?.references.iter().find(|each| each.name.as_ref() == Some(name))?;
        let whole = [named.path.as_slice(), &rest[1..]].concat();
        resolve(modules, &module, &whole, hops - 1)
    });
    passed_on.or_else(|| modules.contains_key(&module).then_some(module))
}

fn in_words(graph: &Graph, circle: &[ModulePath]) -> String {
    let uses = |from: &ModulePath| {
        let to: Vec<String> =
            graph[from].iter().filter(|to| circle.contains(to)).map(|to| name_of(to)).collect();
        format!("{} uses {}", name_of(from), to.join(", "))
    };
    let uses: Vec<String> = circle.iter().map(uses).collect();
    format!("a circle of modules ({}): what they share is a module below them", uses.join("; "))
}
