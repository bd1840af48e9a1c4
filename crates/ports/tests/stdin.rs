//! Standard input, which only a child process can have: the test below runs this program again.

use std::io::Write;
use std::process::{Command, Stdio};
use thalweg_ports::{FileSource, InputOptions, InputSpec, PortNames};

const CHILD: &str = "THALWEG_TEST_STDIN_CHILD";

#[test]
fn standard_input_is_read_to_its_end() {
    let names = PortNames::new(["eth0"]);
    if std::env::var_os(CHILD).is_some() {
        let source =
            FileSource::open(vec![InputSpec::parse("eth0=-")], names, &InputOptions::default()).unwrap();
        assert_eq!(source.progress().bytes_total(), None);
        let (chunks, report) = source.load_all().unwrap();
        assert!(chunks.iter().flat_map(|c| c.packets()).all(|p| p.port_in == 0));
        println!("packets {} issues {}", report.packets, report.first_issues[0]);
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stdin::standard_input_is_read_to_its_end", "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = "any 1.2.3.4 5.6.7.8 1 2 udp\n".repeat(5000) + "any 1.2.3.4\n";
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "packets 5000 issues standard input:5001:12: expected an IPv4 or IPv6 source address";
    assert!(output.status.success() && said.contains(expected), "{said}");
}
