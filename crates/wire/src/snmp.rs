//! SNMP version 2c (RFC 1901, RFC 3416) in BER, as much as reading columns of tables takes: GetBulk requests, and
//! responses.

/// An object's identifier.
pub type Oid = Vec<u32>;

const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const NULL: u8 = 0x05;
const OID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const RESPONSE: u8 = 0xa2;
const GET_BULK: u8 = 0xa5;
/// In place of a value: behind it is nothing.
const END_OF_VIEW: u8 = 0x82;
const VERSION_2C: u32 = 1;

/// What an agent answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The request's number.
    pub request: u32,
    /// Zero if it is none.
    pub error: u32,
    pub values: Vec<(Oid, Value)>,
}

/// What an object has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(Vec<u8>),
    EndOfView,
    /// Of a type that is not read.
    Other,
}

/// A request for up to `repetitions` values behind an object. Numbers of requests have 31 bits.
pub fn get_bulk(community: &[u8], request: u32, repetitions: u8, behind: &[u32]) -> Vec<u8> {
    let variable = of(SEQUENCE, &[oid(behind), of(NULL, &[])].concat());
    let head = [request, 0, repetitions.into()].map(integer).concat();
    let pdu = of(GET_BULK, &[head, of(SEQUENCE, &variable)].concat());
    of(SEQUENCE, &[integer(VERSION_2C), of(OCTET_STRING, community), pdu].concat())
}

/// Reads a response; `None` if it is malformed, or something else.
pub fn response(bytes: &[u8]) -> Option<Response> {
    let mut message = Items(Items(bytes).expected(SEQUENCE)?);
    if message.number()? != VERSION_2C {
        return None;
    }
    message.expected(OCTET_STRING)?;
    let mut pdu = Items(message.expected(RESPONSE)?);
    let (request, error) = (pdu.number()?, pdu.number()?);
    pdu.number()?;
    let mut variables = Items(pdu.expected(SEQUENCE)?);
    let mut values = Vec::new();
    while !variables.0.is_empty() {
        let mut variable = Items(variables.expected(SEQUENCE)?);
        let name = read_oid(variable.expected(OID)?)?;
        let value = match variable.next()? {
            (OCTET_STRING, text) => Value::Text(text.to_vec()),
            (END_OF_VIEW, _) => Value::EndOfView,
            _ => Value::Other,
        };
        values.push((name, value));
    }
    Some(Response { request, error, values })
}

/// An item with its type and length.
fn of(kind: u8, contents: &[u8]) -> Vec<u8> {
    let mut item = vec![kind];
    match u8::try_from(contents.len()) {
        Ok(length @ ..128) => item.push(length),
        // Lengths have their own length; three bytes are enough for any datagram.
        _ => {
            let [.., high, middle, low] = contents.len().to_be_bytes();
            item.extend([0x83, high, middle, low]);
        }
    }
    item.extend(contents);
    item
}

fn integer(number: u32) -> Vec<u8> {
    // The sign has a bit of its own; further bits that say no more are left out.
    let bytes = [&[0], &number.to_be_bytes()[..]].concat();
    let idle = bytes.windows(2).take_while(|pair| pair[0] == 0 && pair[1] < 0x80).count();
    of(INTEGER, &bytes[idle..])
}

fn oid(name: &[u32]) -> Vec<u8> {
    let [first, second, rest @ ..] = name else { return of(OID, &[0]) };
    let mut contents = Vec::new();
    for number in [first * 40 + second].iter().chain(rest) {
        let sevens = (0..5).rev().map(|place| (number >> (7 * place) & 0x7f).to_le_bytes()[0]);
        let mut sevens: Vec<u8> = sevens.skip_while(|seven| *seven == 0).collect();
        let last = sevens.pop().unwrap_or(0);
        contents.extend(sevens.into_iter().map(|seven| seven | 0x80));
        contents.push(last);
    }
    of(OID, &contents)
}

fn read_oid(contents: &[u8]) -> Option<Oid> {
    let mut name = Vec::new();
    let mut number = 0_u32;
    for byte in contents {
        number = number.checked_mul(128)?.checked_add(u32::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            match name.is_empty() {
                true => name.extend([(number / 40).min(2), number - (number / 40).min(2) * 40]),
                false => name.push(number),
            }
            number = 0;
        }
    }
    Some(name)
}

/// Items that follow each other.
struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    /// The type and contents of the next item.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[kind, first], mut rest) = self.0.split_first_chunk::<2>()?;
        let mut length = usize::from(first & 0x7f);
        if first & 0x80 != 0 {
            let (bytes, behind) = rest.split_at_checked(length).filter(|(bytes, _)| bytes.len() <= 4)?;
            length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            rest = behind;
        }
        let (contents, behind) = rest.split_at_checked(length)?;
        self.0 = behind;
        Some((kind, contents))
    }

    fn expected(&mut self, kind: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == kind).map(|(_, contents)| contents)
    }

    /// A number that is not negative.
    fn number(&mut self) -> Option<u32> {
        let bytes = self.expected(INTEGER)?;
        let number =
            bytes.iter().try_fold(0_u32, |number, byte| number.checked_mul(256)?.checked_add((*byte).into()));
        number.filter(|_| bytes.first().is_some_and(|first| first & 0x80 == 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What net-snmp's `snmpbulkget -v2c -c public -Cn0 -Cr5` sends, with this number.
    #[test]
    fn a_request_is_that_of_the_rfc() {
        let bytes = get_bulk(b"public", 0x1234, 5, &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1, 70_000]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "302c02010104067075626c6963a51f0202123402010002010530133011060d2b060102011f0101010184a2700500"
        );
    }

    fn answer(values: &[u8]) -> Vec<u8> {
        let pdu = [integer(7), integer(0), integer(0), of(SEQUENCE, values)].concat();
        of(SEQUENCE, &[integer(1), of(OCTET_STRING, b"x"), of(RESPONSE, &pdu)].concat())
    }

    proptest! {
        #[test]
        fn names_and_texts_are_read_back(
            name in (0..3_u32, 0..40_u32, prop::collection::vec(any::<u32>(), 0..8)),
            text in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let name = [&[name.0, name.1], &name.2[..]].concat();
            let values = of(SEQUENCE, &[oid(&name), of(OCTET_STRING, &text)].concat());
            let read = response(&answer(&values)).unwrap();
            prop_assert_eq!(read, Response { request: 7, error: 0, values: vec![(name, Value::Text(text))] });
        }

        #[test]
        fn no_bytes_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..80),
            at in any::<prop::sample::Index>(),
            value in any::<u8>(),
        ) {
            let _ = response(&bytes);
            let variable = of(SEQUENCE, &[oid(&[1, 3, 6, 1]), of(END_OF_VIEW, &[])].concat());
            let mut whole = answer(&variable);
            let at = at.index(whole.len());
            whole[at] = value;
            let _ = response(&whole);
            let _ = response(&whole[..at]);
        }
    }
}
