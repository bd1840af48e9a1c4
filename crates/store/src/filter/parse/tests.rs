use super::*;

fn parse(text: &str) -> Result<Expression, FilterError> {
    super::parse(text, &|name| match name {
        "www.example.org" => {
            ["192.0.2.1", "2001:db8::1"].iter().map(|address| address.parse().unwrap()).collect()
        }
        _ => Vec::new(),
    })
}

fn error(text: &str) -> (usize, String) {
    let error = parse(text).expect_err(text);
    (error.column, error.message)
}

#[test]
fn precedence_and_brackets() {
    let test = |port| Expression::Test(Test::Number(&[C::DstPort], port, port));
    let udp = Expression::Test(Test::Number(&[C::Protocol], 17, 17));
    assert_eq!(parse(" ").unwrap(), Expression::Any);
    assert_eq!(
        parse("dst port 53 or dst port 443 and udp").unwrap(),
        Expression::OneOf(vec![test(53), Expression::All(vec![test(443), udp.clone()])])
    );
    assert_eq!(
        parse("(dst port 53||dst-port 443)&&!udp").unwrap(),
        Expression::All(vec![Expression::OneOf(vec![test(53), test(443)]), Expression::Not(Box::new(udp))])
    );
}

#[test]
fn numbers() {
    let packets = |from, to| Expression::Test(Test::Sum(&[C::Packets, C::ReversePackets], from, to));
    assert_eq!(parse("packets > 10k").unwrap(), packets(10_001, u64::MAX));
    assert_eq!(parse("packets>=10").unwrap(), packets(10, u64::MAX));
    assert_eq!(parse("packets 5-7").unwrap(), packets(5, 7));
    assert_eq!(parse("packets < 0").unwrap(), Expression::Not(Box::new(Expression::Any)));
    assert_eq!(parse("packets != 3").unwrap(), Expression::Not(Box::new(packets(3, 3))));
    let duration = |from, to| Expression::Test(Test::Duration(from, to));
    assert_eq!(parse("duration <= 1500ms").unwrap(), duration(0, 1_500_000_000));
    assert_eq!(parse("duration 2").unwrap(), duration(2 * SECOND_NS, 2 * SECOND_NS));
    let class = |from, to| Expression::Test(Test::Number(&[C::TrafficClass], from, to));
    assert_eq!(parse("dscp 46").unwrap(), class(184, 187));
    assert_eq!(parse("flags SA").unwrap(), Expression::Test(Test::Flags(0x12)));
}

#[test]
fn lists_and_services() {
    let port = |from, to| Expression::Test(Test::Number(&[C::DstPort], from, to));
    assert_eq!(
        parse("dst port 53,8000-8080,https,ftp-data").unwrap(),
        Expression::OneOf(vec![port(53, 53), port(8000, 8080), port(443, 443), port(20, 20)])
    );
    let several = Expression::OneOf(vec![port(53, 53), port(80, 80)]);
    assert_eq!(parse("dst-port != 53,http").unwrap(), Expression::Not(Box::new(several)));
    let number = |columns, from, to| Expression::Test(Test::Number(columns, from, to));
    let block = vec![number(&[C::NatSrcPort], 0, 2000), number(&[C::NatBlockEnd], 2000, 65_535)];
    let behind_nat = vec![number(&[C::NatSrcPort], 2000, 2000), Expression::All(block)];
    assert_eq!(parse("nat-src-port 2000").unwrap(), Expression::OneOf(behind_nat));
    let protocol = |number| Expression::Test(Test::Number(&[C::Protocol], number, number));
    assert_eq!(parse("proto tcp,89").unwrap(), Expression::OneOf(vec![protocol(6), protocol(89)]));
    let address = |text: &str| Expression::Test(Test::Address(&[C::Src], text.parse().unwrap()));
    assert_eq!(
        parse("src net 10.0.0.0/8,192.0.2.7").unwrap(),
        Expression::OneOf(vec![address("10.0.0.0/8"), address("192.0.2.7/32")])
    );
    assert_eq!(
        parse("src host www.example.org").unwrap(),
        Expression::OneOf(vec![address("192.0.2.1/32"), address("2001:db8::1/128")])
    );
    let country = |code: &str| Expression::Test(Test::Name(&[C::DstCountry], code.to_owned()));
    assert_eq!(parse("dst-country DE,CH").unwrap(), Expression::OneOf(vec![country("DE"), country("CH")]));
    assert_eq!(error("port 53,").0, 6);
    assert_eq!(error("port > 53,80").0, 8);
    assert_eq!(error("port rtp").0, 6);
    assert_eq!(error("src net 10.0.0.0/8,").0, 9);
    assert_eq!(error("ip www.example.org").0, 4);
    assert_eq!(error("host 10.0.0").0, 6);
    assert!(error("host www.example.com").1.starts_with("expected an address, or the name of a host"));
}

#[test]
fn errors_point_at_the_place() {
    assert_eq!(error("src net 10.0.0.0/33").0, 9);
    assert_eq!(
        error("port 70000"),
        (6, "expected a port up to 65535, or a service such as `https`; found `70000`".to_owned())
    );
    assert_eq!(error("udp and"), (8, format!("{TEST_EXPECTED}; found the end")));
    assert_eq!(error("(udp or tcp"), (12, "expected `)`, `and` or `or`; found the end".to_owned()));
    assert_eq!(error("udp tcp"), (5, "expected `and`, `or` or the end; found `tcp`".to_owned()));
    assert_eq!(error("source 10.0.0.1").0, 1);
    assert_eq!(error("src prot 5").0, 5);
    assert_eq!(error("ip 10.0.0.0/8").0, 4);
    assert_eq!(error("app dsn").0, 5);
    assert_eq!(error("packets > many").0, 11);
    assert_eq!(error("proto fax").0, 7);
    assert_eq!(error(") udp").0, 1);
    assert_eq!(error("flags XY").0, 7);
    assert!(error(&"(".repeat(1000)).1.starts_with("expected fewer"));
    let shown = parse("udp and prot 5").unwrap_err().shown_in("udp and prot 5");
    assert!(shown.ends_with("\n  udp and prot 5\n          ^"), "{shown}");
}

#[test]
fn any_text_is_a_filter_or_an_error() {
    let words = [
        "src",
        "dst",
        "net",
        "port",
        "10.0.0.0/8",
        "::1",
        "and",
        "or",
        "not",
        "(",
        ")",
        "53",
        "1-2",
        ",",
        "http,53",
        "host",
        "www.example.org",
        ">",
        "!=",
        "|",
        "&",
        "!",
        "proto",
        "app",
        "dns",
        "flags",
        "S",
        "end",
        "packets",
        "ä",
        "\u{2028}",
        "",
        "-",
    ];
    let mut chance = thalweg_base::XorShift64Star::new(5);
    for _ in 0..20_000 {
        let length = chance.below(8);
        let text: Vec<&str> = (0..length).map(|_| words[chance.below(words.len() as u32) as usize]).collect();
        let text = text.join(if chance.below(3) == 0 { "" } else { " " });
        if let Err(error) = parse(&text) {
            assert!((1..=text.chars().count() + 1).contains(&error.column), "{text:?}: {error}");
        }
    }
}

#[test]
fn words_for_completion_are_understood() {
    for word in crate::Filter::WORDS {
        let text = match *word {
            "and" | "or" => format!("tcp {word} udp"),
            "not" => "not tcp".to_owned(),
            word => word.to_owned(),
        };
        // A word that needs more is one all the same: the error is behind it.
        assert!(parse(&text).err().is_none_or(|error| error.column > word.len()), "{word}");
    }
    assert_eq!(error("weather").0, 1);
}
