//! What the package's binary is made of, as CycloneDX 1.5: each crate with its version, license, checksum and its own
//! dependencies, and the C libraries behind them. From `cargo tree`, which knows the features of this binary alone, and
//! the lock file, so one commit gives the same bytes everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::cargo::cargo_command;

/// What it is about.
pub(crate) const PROGRAM: &str = "thalweg";
/// What its package has beyond the default build, for any command of cargo.
pub(crate) const FEATURES: [&str; 2] = ["--features", "thalweg/kafka"];
/// The system that packages are for.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// A library in C behind a crate.
struct CLibrary {
    name: &'static str,
    license: &'static str,
    /// The crate that compiles it or links to it.
    behind: &'static str,
    /// Its identity without a version, and what stands before that.
    purl: &'static str,
    /// The crate compiles it, from a version that stands behind the `+` of its own; otherwise the system has it.
    is_compiled: bool,
}

/// Those of the package. `ring` compiles C and assembler of its own; they have its version and license.
const C_LIBRARIES: [CLibrary; 2] = [
    CLibrary {
        name: "librdkafka",
        license: "BSD-2-Clause",
        behind: "rdkafka-sys",
        purl: "pkg:github/confluentinc/librdkafka",
        is_compiled: true,
    },
    CLibrary {
        name: "libssl3",
        license: "Apache-2.0",
        behind: "openssl-sys",
        purl: "pkg:deb/debian/libssl3",
        is_compiled: false,
    },
];

impl CLibrary {
    /// Its entry and its identity, if this crate is the one before it.
    fn behind(&self, name: &str, version: &str) -> Option<(String, Value)> {
        if self.behind != name {
            return None;
        }
        let mut component = json!({
            "type": "library",
            "name": self.name,
            "licenses": [{ "expression": self.license }],
        });
        let mut purl = self.purl.to_owned();
        if self.is_compiled {
            let (_, version) = version.split_once('+')?;
            component["version"] = version.into();
            purl = format!("{purl}@v{version}");
        }
        component["bom-ref"] = purl.as_str().into();
        component["purl"] = purl.as_str().into();
        Some((purl, component))
    }
}

/// The bill of materials of the router with the features of its package.
pub(crate) fn of(root: &Path) -> Result<String, String> {
    // Not what only its tests need, or what builds it.
    let output = cargo_command()
        .current_dir(root)
        .args(["tree", "--locked", "--package", PROGRAM, "--edges", "normal", "--target", PLATFORM])
        .args(FEATURES)
        .args(["--charset", "ascii", "--prefix", "depth", "--format", "{p}\t{l}"])
        .output()
        .map_err(|error| format!("cargo did not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let lock =
        std::fs::read_to_string(root.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let lock: toml::Table = lock.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    let bill = bill(&String::from_utf8_lossy(&output.stdout), &lock);
    Ok(format!("{:#}\n", bill.ok_or("cargo tree: not what was expected")?))
}

/// Makes it of lines such as `2serde v1.0.0 (proc-macro)<tab>MIT OR Apache-2.0 (*)`, which begin with their depth; of
/// those with a star the dependencies stand elsewhere.
fn bill(tree: &str, lock: &toml::Table) -> Option<Value> {
    let mut components: BTreeMap<String, Value> = BTreeMap::new();
    let mut depends_on: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut path: Vec<String> = Vec::new();
    for line in tree.lines() {
        let (depth, rest) = line.split_at(line.find(|char: char| !char.is_ascii_digit())?);
        let (package, license) = rest.split_once('\t')?;
        let (name, version) = package.split_once(" v")?;
        let version = version.split(' ').next()?;
        let purl = format!("pkg:cargo/{name}@{version}");
        path.truncate(depth.parse().ok()?);
        if let Some(user) = path.last() {
            depends_on.entry(user.clone()).or_default().insert(purl.clone());
        }
        depends_on.entry(purl.clone()).or_default();
        if !components.contains_key(&purl) {
            let license = license.strip_suffix(" (*)").unwrap_or(license);
            components.insert(purl.clone(), component(name, version, license, lock)?);
            for (library, entry) in C_LIBRARIES.iter().filter_map(|each| each.behind(name, version)) {
                components.insert(library.clone(), entry);
                depends_on.entry(purl.clone()).or_default().insert(library.clone());
                depends_on.entry(library).or_default();
            }
        }
        path.push(purl);
    }
    let mut program = components.remove(path.first()?)?;
    program["type"] = "application".into();
    let dependencies = depends_on.iter().map(|(purl, on)| json!({ "ref": purl, "dependsOn": on }));
    Some(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program },
        "components": components.values().collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn component(name: &str, version: &str, license: &str, lock: &toml::Table) -> Option<Value> {
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        // Some crates write `MIT/Apache-2.0`, which is no expression of SPDX.
        "licenses": [{ "expression": license.replace('/', " OR ") }],
    });
    let is_it = |each: &&toml::Value| {
        let field = |field: &str| each.get(field).and_then(toml::Value::as_str);
        field("name") == Some(name) && field("version") == Some(version)
    };
    let locked = lock.get("package")?.as_array()?.iter().find(is_it)?;
    if let Some(checksum) = locked.get("checksum").and_then(toml::Value::as_str) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    Some(component)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'v>(value: &'v Value, field: &str) -> &'v str {
        value[field].as_str().unwrap_or_else(|| panic!("no {field} in {value}"))
    }

    /// `cargo metadata` says the same of each crate, and knows each dependency (and those of other binaries and tests).
    #[test]
    fn it_says_what_metadata_says() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let bill: Value = serde_json::from_str(&of(root).expect("a bill")).expect("JSON");
        let metadata = cargo_command()
            .current_dir(root)
            .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", PLATFORM])
            .args(FEATURES)
            .output()
            .expect("cargo runs");
        let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("JSON");
        let list = |value: &Value| value.as_array().expect("a list").clone();
        let (mut licenses, mut names) = (BTreeMap::new(), BTreeMap::new());
        for package in list(&metadata["packages"]) {
            let purl = format!("pkg:cargo/{}@{}", text(&package, "name"), text(&package, "version"));
            licenses.insert(purl.clone(), text(&package, "license").replace('/', " OR "));
            names.insert(text(&package, "id").to_owned(), purl);
        }
        let mut known = BTreeSet::new();
        for node in list(&metadata["resolve"]["nodes"]) {
            for dependency in list(&node["deps"]) {
                known.insert((names[text(&node, "id")].clone(), names[text(&dependency, "pkg")].clone()));
            }
        }
        let components = list(&bill["components"]);
        assert!(components.len() > 100, "{} crates", components.len());
        let is_crate = |component: &&Value| text(component, "purl").starts_with("pkg:cargo/");
        for each in components.iter().filter(is_crate) {
            assert_eq!(text(&each["licenses"][0], "expression"), licenses[text(each, "purl")]);
            // Ours have none.
            let is_ours = text(each, "name").starts_with("thalweg-");
            assert_eq!(
                each["hashes"][0]["content"].as_str().map(str::len),
                (!is_ours).then_some(64),
                "{each}"
            );
        }
        let dependencies = list(&bill["dependencies"]);
        assert_eq!(dependencies.len(), components.len() + 1, "those of each, and the program's");
        let mut users = BTreeSet::new();
        for each in dependencies {
            for on in list(&each["dependsOn"]) {
                let on = on.as_str().expect("text").to_owned();
                let is_c = !on.starts_with("pkg:cargo/");
                assert!(
                    is_c || known.contains(&(text(&each, "ref").to_owned(), on.clone())),
                    "{on} in {each}"
                );
                users.insert(on);
            }
        }
        assert!(components.iter().all(|each| users.contains(text(each, "purl"))), "all are used");
        // The package's own feature, and what is C.
        let version_of = |name: &str| {
            let found = components.iter().find(|each| each["name"] == name);
            found.unwrap_or_else(|| panic!("no {name}"))["version"].clone()
        };
        for name in ["rdkafka", "openssl-sys"] {
            assert!(version_of(name).is_string(), "{name}");
        }
        let (outer, inner) = (version_of("rdkafka-sys"), version_of("librdkafka"));
        let [outer, inner] = [&outer, &inner].map(|version| version.as_str().expect("a version"));
        assert!(outer.ends_with(&format!("+{inner}")), "{outer} has librdkafka {inner}");
        assert_eq!(version_of("libssl3"), Value::Null, "the system's, whichever it is");
        assert_eq!(text(&bill["metadata"]["component"], "name"), PROGRAM);
    }
}
