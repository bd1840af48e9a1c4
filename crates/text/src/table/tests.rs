use super::*;

/// Ports as in `show ports`, with long and short values.
fn ports() -> Table {
    let columns = [
        ("Port", Align::Left),
        ("Driver", Align::Left),
        ("MAC", Align::Left),
        ("Packets received", Align::Right),
        ("Packets sent", Align::Right),
    ];
    let mut table = Table::new("Ports", columns).optional(&["MAC", "Driver"]);
    let rows = [
        ["wan", "AF_XDP, zero copy", "02:00:00:00:00:01", "12,345,678,901", "2,800,899"],
        ["office-lan", "AF_PACKET", "02:00:00:00:00:02", "1", "0"],
    ];
    rows.into_iter().for_each(|row| table.push(row.map(str::to_owned)));
    table
}

fn widest(text: &str) -> usize {
    text.lines().map(UnicodeWidthStr::width).max().unwrap_or(0)
}

#[test]
fn rows_get_as_many_cells_as_there_are_columns() {
    let mut table = Table::new("Speeds", [("model", Align::Left), ("Mpps", Align::Right)]);
    table.push(["serial".to_owned()]);
    table.push(["farm".to_owned(), "20.1".to_owned(), "surplus".to_owned()]);
    assert_eq!(table.rows(), [["serial", ""], ["farm", "20.1"]]);
    assert_eq!(table.to_string(), "Speeds\nmodel   Mpps\n────────────\nserial\nfarm    20.1\n");
}

#[test]
fn numbers_stand_to_the_right_and_headings_break_between_words_first() {
    let text = ports().render(Some(76));
    let expected = "\
Ports
                                                           Packets   Packets
Port        Driver             MAC                        received      sent
────────────────────────────────────────────────────────────────────────────
wan         AF_XDP, zero copy  02:00:00:00:00:01    12,345,678,901  2,800,899
";
    assert!(widest(&text) <= 76, "{text}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&text)[..words(expected).len()], words(expected), "{text}");
}

#[test]
fn no_width_breaks_a_number_an_address_or_a_word() {
    for width in 10..140 {
        let text = ports().render(Some(width));
        for whole in ["12,345,678,901", "2,800,899", "office-lan", "received", "sent"] {
            assert!(text.contains(whole), "{width}: {whole} is broken in\n{text}");
        }
        // Below this width the longest label and address do not fit side by side.
        let limit = width.max("Packets received".len() + GAP + "02:00:00:00:00:01".len());
        assert!(widest(&text) <= limit, "{width}:\n{text}");
    }
}

#[test]
fn the_least_important_columns_are_left_out_first_and_named() {
    let text = ports().render(Some(60));
    assert!(text.contains("Driver") && text.ends_with("no room for: MAC\n"), "{text}");
    let text = ports().render(Some(44));
    assert!(text.ends_with("no room for: Driver, MAC\n"), "{text}");
}

#[test]
fn what_does_not_fit_otherwise_is_stacked_with_all_columns() {
    let text = ports().render(Some(36));
    assert!(text.contains("Port              wan\nDriver            AF_XDP, zero copy\n"), "{text}");
    assert!(text.contains("Packets received  12,345,678,901\n") && !text.contains('─'), "{text}");
}

#[test]
fn without_a_width_a_row_is_a_line() {
    let mut table = Table::new("", [("reason", Align::Left), ("meaning", Align::Left)]);
    table.push(["no-route".to_owned(), "word ".repeat(100)]);
    assert_eq!(table.render(None).lines().count(), 3);
    assert!(table.render(Some(80)).lines().count() > 3);
    assert!(widest(&table.render(Some(80))) <= 80);
}

#[test]
fn a_stream_keeps_its_columns() {
    let table = Table::new("", [("prefix", Align::Left), ("n", Align::Right)]);
    let mut stream = TableStream::new(table, Some(40));
    let mut text = String::new();
    for n in 0..3 * STREAM_ROWS {
        // A later piece has longer cells than the first.
        text += &stream.push([format!("10.0.{n}.0/24"), count_of(n)]);
    }
    text += &stream.finish();
    assert_eq!(text.lines().count(), 2 + 3 * STREAM_ROWS);
    assert_eq!(text.matches("prefix").count(), 1);
    assert!(text.contains("10.0.767.0/24") && widest(&text) <= 40, "{text}");
}

fn count_of(n: usize) -> String {
    crate::units::count((n as u64).pow(3))
}
