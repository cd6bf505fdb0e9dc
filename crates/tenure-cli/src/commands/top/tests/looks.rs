//! How it looks.

use ratatui::style::{Color, Modifier};

use super::*;
use crate::commands::top::frame;

#[test]
fn names_on_an_ordinary_terminal() {
    assert_eq!(
        shown(&example(), 80, 24),
        [
            "4 names, 5 held, 3 waiting                                             12:03:11Z",
            "by trouble, engine redis://redis-1:6379 (0.41 ms)",
            "",
            "NAME        STATE     OWNER               HELD   LEFT   WAIT OLDEST NOTE",
            "wallet:0x9f ! stale   relay-7:1 (renewed… 58s    2s     0    -",
            "deploy      held      web-5:912           1m     25s    1    50s",
            "backup      held      web-3:4121          3m12s  27s    2    41s    nightly dump",
            "api:partner 2/5       web-1:7 web-2:9     12s    28s    0    -",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "",
            "q quit  ? keys  / filter  s sort  enter all  w who waits  b break",
        ]
    );
}

#[test]
fn names_on_a_narrow_terminal() {
    let mut model = example();
    press(&mut model, " ");
    assert_eq!(
        shown(&model, 40, 10),
        [
            "4 names, 5 held, 3 wai… PAUSED 12:03:11Z",
            "by trouble, engine …dis-1:6379 (0.41 ms)",
            "",
            "NAME        STATE     OWNER         WAIT",
            "wallet:0x9f ! stale   relay-7:1 (r… 0",
            "deploy      held      web-5:912     1",
            "backup      held      web-3:4121    2",
            "api:partner 2/5       web-1:7 web-… 0",
            "",
            "q quit  ? keys  / filter  s sort",
        ]
    );
}

#[test]
fn the_choice_is_always_in_sight() {
    let mut model = Model::new(settings());
    let views = (0..50).map(|at| view(&format!("name-{at:02}"), 1, &[(at, "a:1", 1, 30)], &[]));
    model.seen(look(views.collect()));
    for _ in 0..30 {
        model.key(Key::Down);
    }
    let lines = shown(&model, 60, 12);
    assert!(lines.iter().any(|line| line.starts_with("name-30")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("name-00")), "{lines:?}");
    let buf = drawn(&model, false, 60, 12);
    let reversed = |y: &u16| buf[(0, *y)].modifier.contains(Modifier::REVERSED);
    let chosen: Vec<_> = (0..12).filter(reversed).map(|y| buf[(5, y)].symbol()).collect();
    assert_eq!(chosen, ["3"]);
}

#[test]
fn who_waits_on_whom_follows_owners_from_name_to_name() {
    let mut model = example();
    press(&mut model, "w");
    assert_eq!(
        shown(&model, 80, 8)[1..],
        [
            "who waits on whom, engine redis://redis-1:6379 (0.41 ms)",
            "",
            "web-3:4121 blocks 3",
            "  web-5:912 waits for backup (41s)",
            "    cron-1:88 waits for deploy (50s)",
            "  web-6:1 waits for backup (3s)",
            "q quit  ? keys  w back",
        ]
    );
}

#[test]
fn a_circle_is_pointed_out_but_not_several_tasks_of_one_process() {
    let mut model = Model::new(settings());
    model.seen(look(vec![
        view("x", 1, &[(1, "a:1", 9, 30)], &[("b:2", 5), ("b:2", 4), ("b:2", 7)]),
        view("y", 1, &[(2, "b:2", 9, 30)], &[("a:1", 3)]),
        view("z", 1, &[(3, "c:3", 9, 30)], &[("c:3", 3), ("c:3", 2)]),
    ]));
    press(&mut model, "w");
    assert_eq!(
        shown(&model, 80, 12)[3..8],
        [
            "c:3 blocks 2",
            "  c:3 x2 waits for z (3s)",
            "a:1 blocks 4",
            "  b:2 x3 waits for x (7s)",
            "    a:1 waits for y (3s): DEADLOCK, each waits for the other",
        ]
    );
    model.seen(look(vec![]));
    assert!(shown(&model, 80, 12).contains(&"Nobody waits.".to_owned()));
}

#[test]
fn everything_about_a_name() {
    let mut model = example();
    press(&mut model, "↓↓\n");
    let lines = shown(&model, 80, 14);
    assert_eq!(lines[1], "all about backup, engine redis://redis-1:6379 (0.41 ms)");
    assert_eq!(lines[3], "\"backup\": lock, held");
    assert_eq!(lines[4], "  holder      web-3:4121, \"nightly dump\"");
    assert!(lines.contains(&"  1. in line  web-5:912, for 41s".to_owned()), "{lines:?}");
    assert!(lines.contains(&"  2. in line  web-6:1, for 3s".to_owned()), "{lines:?}");
    model.seen(look(vec![]));
    assert_eq!(shown(&model, 80, 14)[3], "Nobody holds it and nobody waits.");
}

#[test]
fn an_engine_that_is_gone_is_a_banner_over_what_was_seen_last() {
    let mut model = example();
    model.not_seen("connection refused".into(), SystemTime::UNIX_EPOCH + seconds(43_392));
    let lines = shown(&model, 80, 12);
    assert_eq!(lines[3], "NO ANSWER since 12:03:12Z, retrying: connection refused");
    assert!(lines[5].starts_with("wallet:0x9f"), "{lines:?}");
    assert!(drawn(&model, false, 80, 12)[(79, 3)].modifier.contains(Modifier::REVERSED));
}

#[test]
fn the_box_of_a_break_has_room_for_what_is_asked_on_the_smallest_terminals() {
    for (width, height) in [(80, 24), (40, 24), (40, 10), (20, 6)] {
        let mut model = example();
        press(&mut model, "↓↓b");
        let text = shown(&model, width, height).join("\n");
        assert!(text.contains("> _"), "{text}");
        press(&mut model, "stuck\n18");
        let text = shown(&model, width, height).join("\n");
        assert!(text.contains("> 18_"), "{text}");
    }
    let mut model = example();
    press(&mut model, "↓↓b");
    let text = shown(&model, 80, 24).join("\n");
    for part in [
        "break backup",
        "1842, last",
        "looks ALIVE",
        "two may be running",
        "Next in line: web-5:912",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_long_notice_takes_as_many_lines_as_it_needs() {
    let mut model = example();
    let failure = crate::failure::Failure::new(1, "w".repeat(30), "y".repeat(30), "");
    model.broken("backup", Err(failure));
    let lines = shown(&model, 40, 10);
    assert!(
        lines[8].starts_with("error: www") && lines[9].trim_start().starts_with("yyy"),
        "{lines:?}"
    );
}

#[test]
fn nothing_that_others_wrote_can_harm_a_terminal() {
    let mut model = Model::new(settings());
    let evil = "a\u{1b}[2J\u{202e}\u{7}b";
    let mut seen = view("x", 1, &[(1, evil, 1, 30)], &[(evil, 2)]);
    seen.name = Name::new(Space::Lock, "n\u{202e}\u{200b}m").unwrap();
    model.seen(look(vec![seen]));
    model.not_seen(evil.into(), SystemTime::UNIX_EPOCH);
    for keys in ["", "w", "w\n", "b"] {
        press(&mut model, keys);
        let text = shown(&model, 120, 24).join("\n");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}']), "{text:?}");
        assert!(text.contains("\\u{1b}[2J"), "{text}");
    }
}

#[test]
fn colour_is_only_where_it_is_wanted() {
    let colors = |colored| {
        let buf = drawn(&example(), colored, 80, 24);
        buf.content.iter().map(|cell| cell.fg).filter(|fg| *fg != Color::Reset).count()
    };
    assert_eq!(colors(false), 0);
    assert!(colors(true) > 0);
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let scenes = ["", "/web", "w", "\n", "?", "b", "bwhy\n12\n"];
    for keys in scenes {
        let mut model = example();
        press(&mut model, keys);
        model.not_seen("gone".repeat(20), SystemTime::UNIX_EPOCH);
        model.notice.get_or_insert(crate::commands::top::model::Notice {
            text: "x ".repeat(90),
            bad: true,
        });
        for width in (1..60).chain([80, 300]) {
            for height in (1..12).chain([24, 70]) {
                drawn(&model, true, width, height);
            }
        }
    }
}

#[test]
fn one_frame_is_plain_text_with_all_names() {
    let mut model = Model::new(settings());
    let views = (0..100).map(|at| view(&format!("名前-{at:02}"), 1, &[(at, "a:1", 1, 30)], &[]));
    model.seen(look(views.collect()));
    let text = frame(&model, 60);
    assert_eq!(text.lines().count(), 4 + 100);
    assert!(text.ends_with("名前-99 held      a:1   1s     0    -\n"), "{text}");
    assert!(!text.contains("quit"), "{text}");
    model.seen(look(vec![]));
    assert!(frame(&model, 60).ends_with("Nothing is held and nobody waits.\n"));
}
