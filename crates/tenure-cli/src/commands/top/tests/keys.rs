//! What keys do.

use super::*;
use crate::commands::top::breaking::Step;
use crate::commands::top::model::{Action, Page};
use crate::failure::Failure;

fn name(text: &str) -> Name {
    Name::new(Space::Lock, text).unwrap()
}

fn names(model: &Model) -> Vec<String> {
    model.rows().into_iter().map(|row| row.name).collect()
}

fn selected(model: &Model) -> String {
    let rows = model.rows();
    rows[model.selected_at(&rows).unwrap()].name.clone()
}

#[test]
fn q_and_ctrl_c_quit_and_ctrl_c_says_so() {
    assert_eq!(press(&mut example(), "q"), Some(Action::Quit(None)));
    assert_eq!(example().key(Key::Interrupt), Some(Action::Quit(Some(2))));
    // Also while something is typed, where q is a letter.
    let mut model = example();
    assert_eq!(press(&mut model, "/q"), None);
    assert_eq!(model.key(Key::Interrupt), Some(Action::Quit(Some(2))));
    let mut model = example();
    assert_eq!(press(&mut model, "bq"), None);
    assert_eq!(model.key(Key::Interrupt), Some(Action::Quit(Some(2))));
}

#[test]
fn s_goes_through_the_orders() {
    let mut model = example();
    let orders = [
        ["wallet:0x9f", "deploy", "backup", "api:partner"],
        ["api:partner", "backup", "deploy", "wallet:0x9f"],
        ["deploy", "backup", "api:partner", "wallet:0x9f"],
        ["backup", "deploy", "wallet:0x9f", "api:partner"],
    ];
    for order in orders.iter().chain(&orders[..1]) {
        assert_eq!(names(&model), *order);
        press(&mut model, "s");
    }
}

#[test]
fn the_filter_works_while_it_is_typed_on_names_owners_and_notes() {
    let mut model = example();
    press(&mut model, "/WEB-3");
    assert_eq!(names(&model), ["backup"]);
    press(&mut model, "\x08\x08\x08\x08\x08nightly\n");
    assert_eq!((names(&model), model.typing), (vec!["backup".into()], false));
    press(&mut model, "\x1b");
    assert_eq!(names(&model).len(), 4);
    press(&mut model, "/zzz\x1b");
    assert_eq!((names(&model).len(), model.typing), (4, false));
}

#[test]
fn the_choice_stays_with_its_name_and_with_its_place_when_the_name_is_gone() {
    let mut model = example();
    assert_eq!(selected(&model), "wallet:0x9f");
    press(&mut model, "↓↓");
    assert_eq!(selected(&model), "backup");
    press(&mut model, "s");
    assert_eq!(selected(&model), "backup");
    press(&mut model, "sss");
    let mut seen = look(example().look.unwrap().views);
    seen.views.retain(|view| view.name.as_str() != "backup");
    model.seen(seen.clone());
    assert_eq!(selected(&model), "api:partner");
    press(&mut model, "↓↓↓↓");
    assert_eq!(selected(&model), "api:partner");
    press(&mut model, "kkkkkk");
    assert_eq!(selected(&model), "wallet:0x9f");
    seen.views.clear();
    model.seen(seen);
    assert_eq!(model.selected_at(&model.rows()), None);
    assert_eq!(press(&mut model, "\n↓b\n"), None);
}

#[test]
fn enter_shows_a_name_and_goes_back() {
    let mut model = example();
    press(&mut model, "↓↓\n");
    assert_eq!(model.page, Page::Details(name("backup"), 0));
    press(&mut model, "↓↓↑");
    assert_eq!(model.page, Page::Details(name("backup"), 1));
    // Not beyond the last line.
    for _ in 0..50 {
        model.key(Key::PageDown);
    }
    let lines = model.details(&name("backup")).len();
    assert_eq!(model.page, Page::Details(name("backup"), lines - 1));
    press(&mut model, "\n");
    assert_eq!(model.page, Page::Names);
    press(&mut model, "\t");
    assert_eq!(model.page, Page::Blocked(0));
    for _ in 0..50 {
        model.key(Key::Down);
    }
    assert_eq!(model.page, Page::Blocked(model.blocked().len() - 1));
    press(&mut model, "w");
    assert_eq!(model.page, Page::Names);
}

#[test]
fn space_pauses_and_looks_at_once_when_it_goes_on() {
    let mut model = example();
    assert_eq!((press(&mut model, " "), model.paused), (None, true));
    assert_eq!((press(&mut model, " "), model.paused), (Some(Action::Look), false));
    assert_eq!(press(&mut model, "r"), Some(Action::Look));
}

#[test]
fn any_key_closes_the_help_and_does_nothing_else() {
    let mut model = example();
    press(&mut model, "?");
    assert!(model.help);
    assert_eq!((press(&mut model, "q"), model.help), (None, false));
}

#[test]
fn a_break_needs_a_reason_and_the_fence_typed_by_hand() {
    let mut model = example();
    press(&mut model, "↓↓b");
    let breaking = model.breaking.as_ref().unwrap();
    assert!(breaking.meaning[0].contains("has been held by web-3:4121"), "{breaking:?}");
    assert_eq!(press(&mut model, "\n  \n"), None);
    assert!(model.breaking.as_ref().unwrap().wrong.unwrap().contains("needs a reason"));
    assert_eq!(press(&mut model, "stuck\n"), None);
    assert_eq!(model.breaking.as_ref().unwrap().step, Step::Fence);
    for wrong in ["\n", "1843\n", "842\n", "x\n"] {
        assert_eq!(press(&mut model, wrong), None, "{wrong}");
        assert_eq!(model.breaking.as_ref().unwrap().wrong, Some("that is not its fence"));
    }
    let action =
        Action::Break { id: name("backup"), fence: Fence::new(1842), reason: "stuck".into() };
    assert_eq!(press(&mut model, "1842\n"), Some(action));
    assert!(model.breaking.is_none());
}

#[test]
fn the_last_digits_are_enough_where_they_are_clear() {
    let mut model = example();
    press(&mut model, "bwhy\n");
    assert_eq!(press(&mut model, "223\n"), None);
    let Some(Action::Break { fence, .. }) = press(&mut model, "3223\n") else { panic!() };
    assert_eq!(fence, Fence::new(1_794_766_643_223));

    let mut model = Model::new(settings());
    let holders = [(11_234, "a:1", 1, 30), (21_234, "b:2", 1, 30)];
    model.seen(look(vec![view("sem", 3, &holders, &[])]));
    press(&mut model, "bwhy\n");
    assert_eq!(press(&mut model, "1234\n"), None);
    assert!(model.breaking.as_ref().unwrap().wrong.unwrap().contains("the whole fence"));
    let Some(Action::Break { fence, .. }) = press(&mut model, "21234\n") else { panic!() };
    assert_eq!(fence, Fence::new(21_234));
}

#[test]
fn escape_breaks_nothing_and_neither_does_a_name_that_nobody_holds() {
    let mut model = example();
    assert_eq!(press(&mut model, "bwhy\n3223\x1b\n"), None);
    assert!(model.breaking.is_none());
    let mut model = Model::new(settings());
    model.seen(look(vec![view("free", 1, &[], &[("a:1", 3)])]));
    assert_eq!(press(&mut model, "b"), None);
    assert_eq!(model.notice.as_ref().unwrap().text, "nobody holds \"free\"");
    press(&mut model, "wb");
    assert!(model.notice.unwrap().text.contains("choose a name"));
}

#[test]
fn what_came_of_a_break_is_said_until_the_next_key() {
    let mut model = example();
    model.broken("backup", Ok(()));
    assert_eq!(model.notice.as_ref().unwrap().text, "broke \"backup\"");
    press(&mut model, "s");
    assert_eq!(model.notice, None);
    let moved = Failure::new(1, "fence 7 does not match", "it moved on", "look").code("T022");
    model.broken("backup", Err(moved));
    let notice = model.notice.unwrap();
    assert_eq!(notice.text, "error[T022]: fence 7 does not match; it moved on");
    assert!(notice.bad);
}

#[test]
fn an_engine_that_is_gone_is_remembered_from_the_first_time_on() {
    let mut model = example();
    let first = SystemTime::UNIX_EPOCH + seconds(5);
    model.not_seen("refused".into(), first);
    model.not_seen("no route".into(), SystemTime::UNIX_EPOCH + seconds(9));
    assert_eq!(model.trouble, Some((first, "no route".into())));
    // What was seen before is still there.
    assert_eq!(names(&model).len(), 4);
    model.seen(look(vec![]));
    assert_eq!(
        (model.trouble, model.notice.unwrap().text),
        (None, "the engine is reachable again".into())
    );
}

#[test]
fn a_leader_and_a_lock_of_one_name_are_two() {
    let mut model = Model::new(settings());
    let mut leader = view("cron", 1, &[(31, "web-1:7", 9, 21)], &[]);
    leader.name = Name::new(Space::Election, "cron").unwrap();
    model.seen(look(vec![view("cron", 1, &[(12, "web-2:9", 5, 25)], &[]), leader]));
    press(&mut model, "ss");
    model.key(Key::Down);
    let states: Vec<_> = model.rows().into_iter().map(|row| row.state).collect();
    assert_eq!(states, ["held", "leads"]);
    press(&mut model, "bhangs\n");
    let action = press(&mut model, "31\n");
    let id = Name::new(Space::Election, "cron").unwrap();
    assert_eq!(action, Some(Action::Break { id, fence: Fence::new(31), reason: "hangs".into() }));
}
