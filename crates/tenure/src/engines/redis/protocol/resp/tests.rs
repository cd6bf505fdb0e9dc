use super::*;

/// Every type, in replies as servers send them.
const KNOWN: &[&[u8]] = &[
    b"+OK\r\n",
    b"-NOSCRIPT No matching script.\r\n",
    b":-42\r\n:9223372036854775807\r\n:-9223372036854775808\r\n",
    b"$0\r\n\r\n$5\r\na\r\nbc\r\n$-1\r\n*-1\r\n_\r\n",
    b"*0\r\n*3\r\n:1\r\n*2\r\n$1\r\na\r\n_\r\n#t\r\n",
    b"%2\r\n+server\r\n$5\r\nredis\r\n+proto\r\n:3\r\n~2\r\n#f\r\n,1.5e3\r\n",
    b"(3492890328409238509324850943850943825024385\r\n=7\r\ntxt:abc\r\n!8\r\nERR oops\r\n",
    b">3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$4\r\nturn\r\n+PONG\r\n>0\r\n",
    b"|1\r\n+ttl\r\n*2\r\n:1\r\n:2\r\n*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n|0\r\n:2\r\n:7\r\n",
];

fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().into())
}

fn reply(value: Value) -> Frame {
    Frame::Reply(value)
}

fn list(items: Vec<Value>) -> Frame {
    Frame::Reply(Value::List(items))
}

/// All frames, and how parsing ended: with an error, or with bytes left.
type Outcome = (Vec<Frame>, Option<Malformed>);

fn drain(parser: &mut Parser, outcome: &mut Outcome) {
    loop {
        match parser.next() {
            Ok(Some(frame)) => outcome.0.push(frame),
            Ok(None) => return,
            Err(malformed) => {
                outcome.1 = Some(malformed);
                return;
            }
        }
    }
}

fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let (mut parser, mut outcome) = (Parser::new(), Outcome::default());
    for piece in pieces {
        parser.feed(piece);
        drain(&mut parser, &mut outcome);
    }
    outcome
}

fn refused(input: &[u8]) -> bool {
    let (frames, malformed) = parse([input]);
    frames.is_empty() && malformed.is_some()
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() % limit
    }
}

#[test]
fn every_type_becomes_one_of_five() {
    let (frames, malformed) = parse(KNOWN.iter().copied());
    assert_eq!(malformed, None);
    let expected = vec![
        reply(bytes("OK")),
        reply(Value::Error("NOSCRIPT No matching script.".into())),
        reply(Value::Int(-42)),
        reply(Value::Int(i64::MAX)),
        reply(Value::Int(i64::MIN)),
        reply(bytes("")),
        reply(bytes("a\r\nbc")),
        reply(Value::Nil),
        reply(Value::Nil),
        reply(Value::Nil),
        list(vec![]),
        list(vec![Value::Int(1), Value::List(vec![bytes("a"), Value::Nil]), Value::Int(1)]),
        list(vec![bytes("server"), bytes("redis"), bytes("proto"), Value::Int(3)]),
        list(vec![Value::Int(0), bytes("1.5e3")]),
        reply(bytes("3492890328409238509324850943850943825024385")),
        reply(bytes("abc")),
        reply(Value::Error("ERR oops".into())),
        Frame::Push(vec![bytes("smessage"), bytes("c"), bytes("turn")]),
        reply(bytes("PONG")),
        Frame::Push(vec![]),
        list(vec![Value::Int(1), Value::Int(2)]),
        reply(Value::Int(7)),
    ];
    assert_eq!(frames, expected);
}

#[test]
fn what_is_not_resp3_is_refused_and_stays_refused() {
    for input in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"\r\n",
        b":\r\n",
        b":1x\r\n",
        b":9223372036854775808\r\n",
        b":1\n",
        b":\n",
        b"$?\r\n",
        b"*?\r\n",
        b"$-2\r\n",
        b"$536870913\r\n",
        b"$99999999999999999999\r\n",
        b"$1\r\nabc",
        b"*16777217\r\n",
        b">-1\r\n",
        b"|-1\r\n",
        b"*1\r\n>1\r\n:1\r\n",
        b"|1\r\n>1\r\n:1\r\n",
        b"_x\r\n",
        b"#y\r\n",
        b"=3\r\ntxt\r\n",
        b"=4\r\ntxtx\r\n",
        b".\r\n",
    ] {
        assert!(refused(input), "{}", String::from_utf8_lossy(input));
    }
    let mut parser = Parser::new();
    parser.feed(b":x\r\n");
    let malformed = parser.next().unwrap_err();
    parser.feed(b":1\r\n");
    assert_eq!(parser.next(), Err(malformed));
    assert!(malformed.to_string().contains("RESP3"), "{malformed}");
}

#[test]
fn depth_and_lines_have_limits() {
    assert_eq!(parse([b"*1\r\n".repeat(16).as_slice(), b":1\r\n"]).0.len(), 1);
    assert!(refused(&b"*1\r\n".repeat(17)));
    assert!(refused(&b"|1\r\n".repeat(17)));
    assert!(refused(&b"+".repeat(LONGEST_LINE + 2)));
    assert!(parse([b"+".repeat(LONGEST_LINE + 1).as_slice()]).1.is_some());
    let fits = [b"+".as_slice(), &vec![b'x'; LONGEST_LINE - 2], b"\r\n"].concat();
    assert_eq!(parse([fits.as_slice()]).0.len(), 1);
}

#[test]
fn a_declared_length_takes_no_room_before_the_bytes_arrive() {
    let mut parser = Parser::new();
    parser.feed(&b"*16777216\r\n".repeat(16));
    assert_eq!(parser.next(), Ok(None));
    let room: usize = parser.open.iter().map(|open| open.items.capacity()).sum();
    assert!(room <= 16 * 2 * BELIEVED_ITEMS, "{room}");
    parser.feed(b"$536870912\r\nx");
    assert_eq!(parser.next(), Ok(None));
    assert!(parser.buffer().capacity() <= 3 * MOST_ROOM);
}

#[test]
fn no_chunking_changes_the_result() {
    for known in KNOWN {
        let whole = parse([*known]);
        for first in 0..=known.len() {
            for second in first..=known.len() {
                let pieces = [&known[..first], &known[first..second], &known[second..]];
                assert_eq!(parse(pieces), whole, "{first} {second}");
            }
        }
        assert_eq!(parse(known.chunks(1)), whole);
    }
}

#[test]
fn no_bytes_make_it_panic_and_no_chunking_changes_what_it_says() {
    const ALPHABET: &[u8] = b"+-:$*_#,(!=%~>|0123456789tfx?\r\n\r\n\r\n\0\xff";
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for round in 0..200_000 {
        let mut input = match round % 3 {
            0 => (0..random.below(40)).map(|_| ALPHABET[random.below(ALPHABET.len())]).collect(),
            _ => KNOWN[random.below(KNOWN.len())].to_vec(),
        };
        for _ in 0..random.below(4) {
            let at = random.below(input.len().max(1));
            let other = KNOWN[random.below(KNOWN.len())];
            match random.below(4) {
                0 if at < input.len() => input[at] = ALPHABET[random.below(ALPHABET.len())],
                1 if at < input.len() => drop(input.remove(at)),
                2 => input.truncate(at),
                _ => drop(input.splice(at..at, other[..random.below(other.len())].iter().copied())),
            }
        }
        let whole = parse([input.as_slice()]);
        let mut rest = input.as_slice();
        let pieces = std::iter::from_fn(|| {
            let (piece, after) = rest.split_at_checked(1 + random.below(9)).unwrap_or((rest, b""));
            rest = after;
            (!piece.is_empty()).then_some(piece)
        });
        assert_eq!(parse(pieces), whole, "{:?}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn a_large_reply_in_small_pieces_is_looked_at_once() {
    let body = vec![b'x'; 16 << 20];
    let mut bulk_reply = Vec::new();
    bulk(&mut bulk_reply, &body);
    let (frames, _) = parse(bulk_reply.chunks(100));
    assert_eq!(frames, [reply(Value::Bytes(body.into()))]);

    // If every piece made the parser start the list again, this would take some 10^11 steps.
    let mut items = b"*1000000\r\n".to_vec();
    (0..1_000_000).for_each(|_| items.extend_from_slice(b":12\r\n"));
    let (frames, _) = parse(items.chunks(7));
    assert_eq!(frames, [list(vec![Value::Int(12); 1_000_000])]);
}

#[test]
fn what_was_parsed_is_dropped_and_the_room_of_a_huge_reply_given_back() {
    let mut parser = Parser::new();
    for _ in 0..100_000 {
        parser.feed(b"$3\r\nabc\r\n$3\r\na");
        assert_eq!(parser.next(), Ok(Some(reply(bytes("abc")))));
        parser.feed(b"bc\r\n");
        assert_eq!(parser.next(), Ok(Some(reply(bytes("abc")))));
    }
    assert!(parser.bytes.capacity() <= 4 * ROOM, "{}", parser.bytes.capacity());
    let mut huge = Vec::new();
    bulk(&mut huge, &vec![0; 8 << 20]);
    parser.feed(&huge);
    assert!(matches!(parser.next(), Ok(Some(_))));
    assert!(parser.buffer().capacity() <= 2 * ROOM);
}

#[test]
fn commands_are_arrays_of_bulk_strings() {
    let mut out = Vec::new();
    command(&mut out, &[b"GET", b"", b"0123456789"]);
    assert_eq!(out, b"*3\r\n$3\r\nGET\r\n$0\r\n\r\n$10\r\n0123456789\r\n");
    out.clear();
    array(&mut out, 12);
    bulk_number(&mut out, 0);
    bulk_number(&mut out, 30_000);
    assert_eq!(out, b"*12\r\n$1\r\n0\r\n$5\r\n30000\r\n");
}

#[test]
fn every_number_is_written_as_it_reads() {
    let mut random = Random(7);
    let edges = (0..64).flat_map(|bits| [1_u64 << bits, (1 << bits) - 1, u64::MAX >> bits]);
    let tens = (0..20).flat_map(|power| [10_u64.pow(power), 10_u64.pow(power) - 1]);
    let some: Vec<_> = (0..10_000).map(|_| random.next() as u64 >> random.below(54)).collect();
    for n in edges.chain(tens).chain(some).chain(0..1100) {
        assert_eq!(decimal(n, &mut [0; 20]), n.to_string().as_bytes());
    }
}

#[test]
fn values_are_read_as_what_they_are() {
    assert_eq!(Value::Int(5).as_int(), Some(5));
    assert_eq!(bytes("-17").as_int(), Some(-17));
    for none in ["", "-", "+", "1.5", "99999999999999999999", " 1"] {
        assert_eq!(bytes(none).as_int(), None, "{none}");
    }
    assert_eq!(Value::Nil.as_int(), None);
    assert_eq!(bytes("ü").as_str(), Some("ü"));
    assert_eq!(Value::Bytes([0xff].into()).as_str(), None);
    assert_eq!(Value::Int(1).as_bytes(), None);
    assert_eq!(Value::List(vec![Value::Nil]).as_list(), Some(&[Value::Nil][..]));
    assert_eq!(size_of::<Value>(), 24);
}

#[test]
fn debug_shows_no_content() {
    let value = Value::List(vec![
        bytes("secret"),
        Value::Error("ERR unknown command, with args beginning with: 'secret'".into()),
    ]);
    assert_eq!(format!("{value:?}"), "[Bytes(6 bytes), Error(ERR)]");
}
