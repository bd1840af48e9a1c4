//! Each rule on a small generated tree: first one without findings, then the same tree with one fault.

use super::*;
use tempfile::TempDir;

/// A tree with two crates and no findings.
fn tree() -> TempDir {
    let root = TempDir::new().unwrap();
    write(&root, "Cargo.toml", "[workspace]\nmembers = ['crates/*']\n");
    write(&root, "ARCHITECTURE.md", "`crates/base` and `crates/bgp`");
    write(&root, "crates/base/Cargo.toml", &manifest("base", "may-use = []", ""));
    write(&root, "crates/base/src/lib.rs", "//! Base.\n");
    let uses = "[dependencies]\nthalweg-base = { path = '../base' }\nserde = '1'\n";
    write(&root, "crates/bgp/Cargo.toml", &manifest("bgp", "may-use = ['base']", uses));
    write(&root, "crates/bgp/src/lib.rs", "//! BGP.\n");
    root
}

fn manifest(name: &str, metadata: &str, dependencies: &str) -> String {
    format!("[package]\nname = 'thalweg-{name}'\n[package.metadata.thalweg]\n{metadata}\n{dependencies}")
}

fn write(root: &TempDir, file: &str, text: &str) {
    let path = root.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[track_caller]
fn finds(root: &TempDir, expected: &[&str]) {
    let found: Vec<String> = check(root.path()).unwrap().iter().map(Finding::to_string).collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.contains(expected), "{found}\n does not contain\n{expected}");
    }
}

#[test]
fn a_tree_in_order_has_no_findings() {
    finds(&tree(), &[]);
}

#[test]
fn a_test_that_is_in_no_program_is_missed() {
    let root = tree();
    let manifest = "[package]\nname = 'thalweg-base'\nautotests = false\n\
                    [package.metadata.thalweg]\nmay-use = []\n[[test]]\nname = 'main'\n";
    write(&root, "crates/base/Cargo.toml", manifest);
    write(&root, "crates/base/tests/main.rs", "mod found;\n");
    write(&root, "crates/base/tests/found.rs", "");
    finds(&root, &[]);
    write(&root, "crates/base/tests/lost.rs", "");
    finds(&root, &["crates/base/tests/lost.rs: is in no test program"]);
}

#[test]
fn a_vendored_file_is_the_one_of_its_lock() {
    let root = tree();
    write(&root, "crates/web/Cargo.toml", &manifest("web", "may-use = []", ""));
    write(&root, "ARCHITECTURE.md", "`crates/base`, `crates/bgp` and `crates/web`");
    let lock =
        "[[file]]\nname = 'vendor/a.js'\npackage = 'a'\nversion = '1'\nsource = 'a.js'\nlicense = 'MIT'\n";
    // FIPS 180-2 appendix C.1: the digest of `abc`.
    let sum = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
               2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
    write(&root, "crates/web/assets/vendor.lock", &format!("{lock}sha512 = '{sum}'\n"));
    write(&root, "crates/web/assets/vendor/a.js", "abc");
    write(&root, "crates/web/assets/vendor/LICENSES.txt", "Neither neighbours nor their names");
    finds(&root, &[]);
    write(&root, "crates/web/assets/pages/page.js", "// neighbours\n");
    finds(&root, &["crates/web/assets/pages/page.js:1: `neighbour`"]);
    write(&root, "crates/web/assets/pages/page.js", "");
    write(&root, "crates/web/assets/vendor/a.js", "abd");
    write(&root, "crates/web/assets/vendor/b.js", "");
    finds(&root, &["assets/vendor/a.js: its sha512 is", "assets/vendor/b.js: is not in vendor.lock"]);
    std::fs::remove_file(root.path().join("crates/web/assets/vendor/a.js")).unwrap();
    std::fs::remove_file(root.path().join("crates/web/assets/vendor/b.js")).unwrap();
    write(&root, "crates/web/assets/vendor.lock", &format!("{}sha512 = '{sum}'\n", lock.replace("MIT", "")));
    finds(&root, &["assets/vendor/a.js: sha512sum: ", "vendor.lock: vendor/a.js: no `license`"]);
}

#[test]
fn an_arrow_that_the_manifest_does_not_allow_fails() {
    let root = tree();
    let uses = "[dependencies]\nthalweg-base = '1'\nthalweg-ports = '1'\n";
    write(&root, "crates/bgp/Cargo.toml", &manifest("bgp", "may-use = ['base']", uses));
    finds(&root, &["error: crates/bgp/Cargo.toml: bgp may use: base, but its manifest depends on ports"]);
}

#[test]
fn renamed_and_platform_dependencies_are_seen() {
    let root = tree();
    let uses = "[target.'cfg(unix)'.build-dependencies]\nx = { package = 'thalweg-bgp' }\n";
    write(&root, "crates/base/Cargo.toml", &manifest("base", "may-use = []", uses));
    finds(&root, &["base may use: none of ours, but its manifest depends on bgp"]);
}

#[test]
fn casts_may_only_become_fewer() {
    let root = tree();
    let code = "fn a(n: u64) -> u8 { n as u8 }\n// n as u8\nfn b(n: u8) -> u64 { n as u64 }\n#[cfg(test)]\nmod tests { fn c() { 1 as u8; } }\n";
    write(&root, "crates/base/src/casts.rs", code);
    finds(&root, &["error: crates/base/Cargo.toml: 1 casts to narrow types, 0 allowed"]);
    write(&root, "crates/base/Cargo.toml", &manifest("base", "may-use = []\ncasts-max = 2", ""));
    finds(&root, &["error: crates/base/Cargo.toml: 1 casts to narrow types are left: casts-max = 1"]);
    write(&root, "crates/base/Cargo.toml", &manifest("base", "may-use = []\ncasts-max = 1", ""));
    finds(&root, &[]);
}

#[test]
fn the_program_is_a_crate_like_others() {
    let root = tree();
    let uses = "[dependencies]\nthalweg = '1'\n";
    write(&root, "crates/base/Cargo.toml", &manifest("base", "may-use = []", uses));
    finds(&root, &["depends on thalweg"]);
}

#[test]
fn tests_may_use_more_where_the_manifest_says_so() {
    let root = tree();
    let uses = "[dev-dependencies]\nthalweg-bgp = '1'\n";
    write(&root, "crates/base/Cargo.toml", &manifest("base", "may-use = []", uses));
    finds(&root, &["base's tests may use: none of ours, but its manifest depends on bgp"]);
    let metadata = "may-use = []\nmay-use-in-tests = ['bgp']";
    write(&root, "crates/base/Cargo.toml", &manifest("base", metadata, uses));
    finds(&root, &[]);
}

#[test]
fn a_crate_must_say_whom_it_may_use() {
    let root = tree();
    write(&root, "crates/base/Cargo.toml", &manifest("base", "", ""));
    finds(&root, &["error: crates/base/Cargo.toml: states no [package.metadata.thalweg] may-use"]);
}

#[test]
fn an_allowance_without_a_crate_is_a_warning() {
    let root = tree();
    write(&root, "crates/base/Cargo.toml", &manifest("base", "may-use = ['stor']", ""));
    finds(&root, &["warning: crates/base/Cargo.toml: base may use stor, which does not exist"]);
}

#[test]
fn modules_use_each_other_in_no_circle() {
    let root = tree();
    write(&root, "crates/bgp/src/lib.rs", "mod a;\nmod b;\nmod c;\n");
    // A parent uses its child, and the child its parent; tests may use anything; comments are not code.
    write(
        &root,
        "crates/bgp/src/a.rs",
        "mod part;\nuse crate::b::{B, other as o};\nuse part::Part;\n/// One.\npub struct A;\n",
    );
    write(&root, "crates/bgp/src/a/part.rs", "use super::A;\n/// One.\npub struct Part;\n");
    let b = "pub use crate::c::C;\n// crate::a::A\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}\n#[cfg(test)]\nmod more;\n";
    write(&root, "crates/bgp/src/b.rs", b);
    write(&root, "crates/bgp/src/b/more.rs", "use crate::a::A;\n");
    write(&root, "crates/bgp/src/c.rs", "pub(in crate::b) struct C;\n");
    finds(&root, &[]);
    // Through a re-export, not by the module itself.
    write(&root, "crates/bgp/src/a/part.rs", "use crate::b::C;\n/// One.\npub struct Part;\n");
    write(&root, "crates/bgp/src/c.rs", "fn f(_: crate::a::part::Part) {}\n");
    let found = "error: crates/bgp/src/a/part.rs: a circle of modules (a::part uses c; c uses a::part)";
    finds(&root, &[found]);
    write(&root, "crates/bgp/src/c.rs", "use super::{a::part::*};\n");
    finds(&root, &[found]);
}

#[test]
fn an_arrow_of_a_circle_is_listed_with_its_reason_and_only_as_long_as_it_is_one() {
    let root = tree();
    write(&root, "crates/bgp/src/a.rs", "use crate::b::B;\n");
    write(&root, "crates/bgp/src/b.rs", "fn f() { super::a::g() }\n");
    finds(&root, &["a circle of modules (a uses b; b uses a)"]);
    let listed = |why: &str| {
        let arrow = format!("crate = 'bgp'\nfrom = 'b'\nto = 'a'\n{why}");
        format!("[workspace]\n[[workspace.metadata.thalweg.circle-arrows]]\n{arrow}")
    };
    write(&root, "Cargo.toml", &listed("why = 'history'"));
    finds(&root, &[]);
    write(&root, "crates/bgp/src/a.rs", "use std::fmt;\n");
    finds(&root, &["error: Cargo.toml: circle-arrows lists bgp: b -> a, which closes no circle"]);
    write(&root, "Cargo.toml", &listed(""));
    assert!(check(root.path()).unwrap_err().contains("not a list of { crate, from, to, why }"));
}

#[test]
fn the_map_must_show_every_crate() {
    let root = tree();
    write(&root, "ARCHITECTURE.md", "`crates/base` only");
    finds(&root, &["error: ARCHITECTURE.md: does not mention `crates/bgp`"]);
    std::fs::remove_file(root.path().join("ARCHITECTURE.md")).unwrap();
    finds(&root, &["`crates/base`", "`crates/bgp`"]);
}

#[test]
fn long_files_fail_and_long_functions_warn() {
    let root = tree();
    write(&root, "crates/bgp/src/big.rs", &"// line\n".repeat(FILE_LINES_MAX));
    finds(&root, &[]);
    write(&root, "crates/bgp/src/big.rs", &"// line\n".repeat(FILE_LINES_MAX + 1));
    finds(&root, &["error: crates/bgp/src/big.rs: 801 lines; a file has at most 800"]);

    let function = |lines: usize| format!("\nfn work() {{\n{}}}\n", "    f(\"{\");\n".repeat(lines - 2));
    write(&root, "crates/bgp/src/big.rs", &function(FUNCTION_LINES_WARN));
    finds(&root, &[]);
    write(&root, "crates/bgp/src/big.rs", &function(FUNCTION_LINES_WARN + 1));
    finds(&root, &["warning: crates/bgp/src/big.rs:2: fn work has 101 lines"]);
}

#[test]
fn function_pointers_and_declarations_are_not_functions() {
    let root = tree();
    let filler = "    x: u8,\n".repeat(150);
    let text =
        format!("trait T {{ fn f(&self, g: fn(u8) -> u8); }}\nstruct S {{\n f: Box<dyn Fn()>,\n{filler}}}\n");
    write(&root, "crates/bgp/src/lib.rs", &text);
    finds(&root, &[]);
}

#[test]
fn the_wall_clock_is_read_where_a_date_is_wanted() {
    let root = tree();
    write(&root, "ARCHITECTURE.md", "`crates/base`, `crates/bgp` and `crates/ports`");
    write(&root, "crates/ports/Cargo.toml", &manifest("ports", "may-use = []", ""));
    let text = "//! Not SystemTime.\nfn now() -> SystemTime { SystemTime::now() }\n";
    write(&root, "crates/ports/src/live/clock.rs", text);
    finds(&root, &[]);
    write(&root, "crates/bgp/src/timer.rs", "fn due() {}\nfn now() { SystemTime::now(); }\n");
    finds(&root, &["error: crates/bgp/src/timer.rs:2: the wall clock jumps"]);
}

#[test]
fn forbidden_words_fail_in_code_only() {
    let root = tree();
    let text =
        "//! todo! and #[ignore] in prose\n// dbg!(x)\nconst T: &str = \"todo!()\";\nfn todo_list() {}\n";
    write(&root, "crates/bgp/src/lib.rs", text);
    finds(&root, &[]);
    let text = "fn a() { todo!() }\nfn b() { std::dbg!(1); }\nfn c() { unimplemented!(\"x\") }\n\
                #[ignore = \"slow\"]\nfn d() {}\n#[cfg_attr(miri, ignore)]\nfn e() {}\n";
    write(&root, "crates/bgp/src/lib.rs", text);
    finds(&root, &[":1: todo!", ":2: dbg!", ":3: unimplemented!", ":4: #[ignore]", ":6: #[ignore]"]);
}

#[test]
fn unsafe_stands_in_listed_files_only() {
    let root = tree();
    write(&root, "crates/bgp/src/fast.rs", "// unsafe is a word\nfn f() { unsafe { g() } }\n");
    finds(&root, &["error: crates/bgp/src/fast.rs:2: unsafe code in a file that is not on the list"]);

    let list = "[workspace.metadata.thalweg]\nunsafe-files = ['crates/bgp/src/fast.rs']\n";
    write(&root, "Cargo.toml", list);
    finds(&root, &[]);

    write(&root, "crates/bgp/src/fast.rs", "fn f() {}\n");
    finds(&root, &["error: Cargo.toml: unsafe-files lists crates/bgp/src/fast.rs, which has no unsafe code"]);

    write(&root, "Cargo.toml", "");
    write(&root, "crates/bgp/src/fast.rs", "#![allow(dead_code, unsafe_code)]\n");
    finds(&root, &["crates/bgp/src/fast.rs:1: allow(unsafe_code) in a file"]);

    write(&root, "Cargo.toml", "[workspace.metadata.thalweg]\nunsafe-files = 'all'\n");
    assert!(check(root.path()).unwrap_err().contains("not a list"));
}

#[test]
fn findings_come_by_file_and_line_and_build_folders_are_left_alone() {
    let root = tree();
    write(&root, "crates/bgp/src/b.rs", "fn x() {}\nfn a() { todo!() }\n");
    write(&root, "crates/base/src/a.rs", "fn a() { todo!() }\nfn b() { dbg!(2) }\n");
    write(&root, "fuzz/target/debug/x.rs", "fn a() { todo!() }\n");
    finds(&root, &["base/src/a.rs:1", "base/src/a.rs:2", "bgp/src/b.rs:2"]);
}

#[test]
fn a_word_that_has_another_name_fails_in_code_and_in_documents() {
    let root = tree();
    write(
        &root,
        "crates/bgp/src/peer.rs",
        "/// A Neighbour of ours.\nlet octets = address.octets();\nlet destination = 1;\n",
    );
    write(&root, "docs/bgp.md", "Stations are asked.\n");
    finds(
        &root,
        &[
            "error: crates/bgp/src/peer.rs:1: `neighbour`: say `neighbor`",
            "error: crates/bgp/src/peer.rs:2: `octets`: say `bytes`",
            "error: docs/bgp.md:1: `station`: say `neighbor`",
        ],
    );
}

#[test]
fn what_is_public_is_documented_and_fields_are_not_repeated() {
    let root = tree();
    let text = "/// A path.\n#[derive(\n    Clone,\n)]\npub struct Path {\n    pub address: u32,\n    /// How long it waits.\n    pub wait_s: \
                u32,\n}\n\n/// Makes one.\npub const fn path() -> Path {}\npub(crate) fn inside() {}\nfn f(pub_: u8) {}\n";
    write(&root, "crates/base/src/path.rs", text);
    write(&root, "crates/base/src/tests/more.rs", "pub fn open() {}\n");
    finds(&root, &[]);
    write(
        &root,
        "crates/base/src/path.rs",
        &text.replace("/// Makes one.\n", "").replace("/// A path.\n", ""),
    );
    finds(&root, &["path.rs:4: `Path` is public", "path.rs:10: `path` is public"]);
    let text =
        text.replace("    pub address", "    /// Its address.\n    #[serde(default)]\n    pub address");
    write(&root, "crates/base/src/path.rs", &text);
    finds(&root, &["path.rs:6: `Its address.` only repeats `address`"]);
    let variants = "/// A reason.\npub enum Reason {\n    /// No route.\n    NoRoute,\n    /// Why.\n    Other(u8),\n    /// Ends.\n    NoTtl,\n}\n";
    write(&root, "crates/base/src/path.rs", variants);
    finds(
        &root,
        &["path.rs:3: `No route.` only repeats `NoRoute`", "path.rs:5: `Why.` only repeats `Other`"],
    );
}
