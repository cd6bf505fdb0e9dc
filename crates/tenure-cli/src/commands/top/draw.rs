//! Draws a model into the cells of a terminal of any size.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Block, Clear, Widget};

use super::breaking::{Breaking, Step};
use super::model::{Look, Model, Page};
use super::rows::Row;
use super::text::{fit, width, wrap};
use crate::facts;
use crate::output::{clean, span};

/// Anything smaller than this shows nothing useful.
const SMALLEST: (u16, u16) = (20, 6);
/// The largest width of a box over the picture.
const WIDEST_BOX: u16 = 76;

const HELP: &[&str] = &[
    "q             quit; so does Ctrl-C",
    "up, down      choose a name; also j, k, page up, page down, home, end",
    "enter         show who holds the name and who waits for it; again: back",
    "/             show only what contains a text; escape: show all",
    "s             sort by trouble, name, wait or held",
    "w, tab        who waits on whom",
    "b             break a hold, after showing what that means",
    "space         pause and resume",
    "r             refresh now",
    "",
    "Trouble is an overdue renewal, then the longest wait. LEFT is what remains of the ttl unless \
     the holder renews it, which it does after a third.",
];

/// The styles, with colour or without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Styles {
    pub(super) colored: bool,
}

impl Styles {
    fn color(self, color: Color) -> Style {
        if self.colored { Style::new().fg(color) } else { Style::new() }
    }

    fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn bad(self) -> Style {
        self.color(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn waiting(self) -> Style {
        self.color(Color::Yellow)
    }

    fn banner(self) -> Style {
        self.bad().add_modifier(Modifier::REVERSED)
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

/// Draws everything.
pub(super) fn draw(model: &Model, styles: Styles, area: Rect, buf: &mut Buffer) {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        line("too small", styles.heading(), area, 0, buf);
        return;
    }
    let mut top = draw_head(model, styles, area, buf);
    if let Some((since, why)) = &model.trouble {
        let since = facts::time_of_day(*since);
        let text = format!("NO ANSWER since {since}, retrying: {}", clean(why));
        for text in wrap(&text, area.width.into()).iter().take(3) {
            let text = format!("{text:<width$}", width = usize::from(area.width));
            line(&text, styles.banner(), area, top, buf);
            top += 1;
        }
    }
    let body = Rect { y: area.y + top, height: area.height.saturating_sub(top + 1), ..area };
    match &model.page {
        Page::Names => draw_names(model, styles, body, buf),
        Page::Blocked(from) => draw_blocked(model, *from, styles, body, buf),
        Page::Details(name, from) => {
            let lines = model.details(name);
            draw_lines(
                lines.iter().skip(*from).map(|line| (line.clone(), Style::new())),
                body,
                buf,
            );
        }
    }
    draw_foot(model, styles, area, buf);
    if let Some(breaking) = &model.breaking {
        draw_breaking(breaking, styles, area, buf);
    }
    if model.help {
        let lines = HELP.iter().map(|line| ((*line).to_owned(), Style::new())).collect();
        draw_box(" keys ", lines, styles, area, buf);
    }
}

/// The number of lines of the head.
pub(super) const HEAD: u16 = 3;

/// The title and the status, in two lines and an empty one.
fn draw_head(model: &Model, styles: Styles, area: Rect, buf: &mut Buffer) -> u16 {
    let mut right =
        model.look.as_ref().map_or_else(String::new, |look| facts::time_of_day(look.at));
    if model.paused {
        right = format!("PAUSED {right}");
    }
    let room = usize::from(area.width).saturating_sub(width(&right) + 1);
    line(&fit(&totals(model.look.as_ref()), room), styles.heading(), area, 0, buf);
    let from = area.width.saturating_sub(u16::try_from(width(&right)).unwrap_or(area.width));
    let corner = Rect { x: area.x + from, width: area.width - from, ..area };
    let style = if model.paused { styles.bad() } else { Style::new() };
    line(&right, style, corner, 0, buf);
    line(&about(model, area.width.into()), styles.dim(), area, 1, buf);
    HEAD
}

fn totals(look: Option<&Look>) -> String {
    let Some(look) = look else { return "looking…".into() };
    let held: usize = look.views.iter().map(|view| view.holders.len()).sum();
    let waiting: usize = look.views.iter().map(|view| view.waiters.len()).sum();
    let names = match look.views.len() {
        1 => "1 name".to_owned(),
        many => format!("{many} names"),
    };
    format!("{names}, {held} held, {waiting} waiting")
}

/// The second line: the page, and the engine if there is room for it.
fn about(model: &Model, columns: usize) -> String {
    let mut about = match &model.page {
        Page::Names => format!("by {}", model.sort.name()),
        Page::Blocked(_) => "who waits on whom".into(),
        Page::Details(id, _) => {
            format!("all about {}", clean(model.settings.short_name(id.as_str())))
        }
    };
    if !model.filter.is_empty() && !model.typing && model.page == Page::Names {
        about = format!("{about}, only \"{}\"", clean(&model.filter));
    }
    let Some(look) = &model.look else { return fit(&about, columns) };
    let trip = format!(" ({:.2} ms)", look.trip.as_secs_f64() * 1e3);
    let engine = clean(&look.engine);
    let room = columns.saturating_sub(width(&about) + width(", engine ") + width(&trip));
    match room {
        // The end of a path says more than its beginning.
        0..8 => fit(&about, columns),
        _ => format!("{about}, engine {}{trip}", fit_end(&engine, room)),
    }
}

/// The last `columns` columns.
fn fit_end(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let backwards: String = text.chars().rev().collect();
    fit(&backwards, columns).chars().rev().collect()
}

fn draw_foot(model: &Model, styles: Styles, area: Rect, buf: &mut Buffer) {
    let at = area.height - 1;
    if model.typing {
        let (filter, columns) = (clean(&model.filter), usize::from(area.width));
        line(&fit_end(&format!("/{filter}_"), columns), styles.heading(), area, at, buf);
        return;
    }
    if let Some(notice) = &model.notice {
        let style = if notice.bad { styles.bad() } else { styles.heading() };
        let lines = wrap(&notice.text, area.width.into());
        let first = area.height.saturating_sub(u16::try_from(lines.len()).unwrap_or(u16::MAX));
        for (at, text) in (first..area.height).zip(lines) {
            let text = format!("{text:<width$}", width = usize::from(area.width));
            line(&text, style, area, at, buf);
        }
        return;
    }
    let keys: &[&str] = match model.page {
        Page::Names => {
            &["q quit", "? keys", "/ filter", "s sort", "enter all", "w who waits", "b break"]
        }
        Page::Blocked(_) => &["q quit", "? keys", "w back"],
        Page::Details(..) => &["q quit", "? keys", "enter back", "b break"],
    };
    let mut text = String::new();
    for key in keys {
        if width(&text) + width(key) + 2 > usize::from(area.width) {
            break;
        }
        text = if text.is_empty() { (*key).to_owned() } else { format!("{text}  {key}") };
    }
    line(&text, styles.dim(), area, at, buf);
}

/// A column: its heading, its content and its width.
struct Column {
    heading: &'static str,
    cell: fn(&Row) -> String,
    width: usize,
}

fn time(time: Option<std::time::Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), span)
}

/// The columns that fit. Names, owners and notes share the remaining width.
fn columns(rows: &[Row], all: usize) -> Vec<Column> {
    let column = |heading, width, cell| Column { heading, cell, width };
    let mut columns = vec![
        column("NAME", 0, |row: &Row| row.name.clone()),
        column("STATE", 9, |row| row.state.clone()),
        column("OWNER", 0, |row| row.owner.clone()),
    ];
    if all >= 50 {
        columns.push(column("HELD", 6, |row| time(row.held)));
    }
    if all >= 72 {
        columns.push(column("LEFT", 6, |row| time(row.left)));
    }
    columns.push(column("WAIT", 4, |row| row.waiting.to_string()));
    if all >= 50 {
        columns.push(column("OLDEST", 6, |row| time(row.oldest)));
    }
    if all >= 72 {
        columns.push(column("NOTE", 0, |row| row.note.clone()));
    }
    let taken: usize = columns.iter().map(|column| column.width + 1).sum();
    let mut room = all.saturating_sub(taken - 1);
    let widest = |column: &Column| {
        let cells = rows.iter().map(|row| width(&(column.cell)(row)));
        cells.max().unwrap_or(0).max(column.heading.len())
    };
    let mut wanting: Vec<_> = columns.iter_mut().filter(|column| column.width == 0).collect();
    wanting.sort_by_key(|column| widest(column));
    // Each gets its share, and unused width goes to columns that need more.
    for (at, sharing) in (1..=wanting.len()).rev().enumerate() {
        let column = &mut wanting[at];
        column.width = widest(column).min(room / sharing);
        room -= column.width;
    }
    columns
}

fn draw_names(model: &Model, styles: Styles, area: Rect, buf: &mut Buffer) {
    let rows = model.rows();
    let columns = columns(&rows, area.width.into());
    let mut put = |at: u16, cells: &mut dyn FnMut(&Column) -> String, style: Style| {
        let mut x = area.x;
        buf.set_style(Rect { y: area.y + at, height: 1, ..area }, style);
        for column in &columns {
            buf.set_stringn(x, area.y + at, fit(&cells(column), column.width), column.width, style);
            x += u16::try_from(column.width + 1).unwrap_or(0);
        }
    };
    if area.height < 2 {
        return;
    }
    put(0, &mut |column| column.heading.to_owned(), styles.heading());
    let selected = model.selected_at(&rows);
    let room = usize::from(area.height - 1);
    let first = selected.map_or(0, |selected| (selected + 1).saturating_sub(room));
    for (at, (number, row)) in rows.iter().enumerate().skip(first).take(room).enumerate() {
        let style = match row {
            Row { late: true, .. } => styles.bad(),
            Row { waiting: 1.., .. } => styles.waiting(),
            _ => Style::new(),
        };
        let style = match selected == Some(number) {
            true => style.add_modifier(Modifier::REVERSED),
            false => style,
        };
        let at = u16::try_from(at + 1).unwrap_or(u16::MAX);
        put(at, &mut |column| (column.cell)(row), style);
    }
    if rows.is_empty() && model.look.is_some() {
        let nothing = match model.filter.is_empty() {
            true => "Nothing is held and nobody waits.",
            false => "Nothing matches the filter. Escape shows all.",
        };
        line(&fit(nothing, area.width.into()), Style::new(), area, 1, buf);
    }
}

fn draw_blocked(model: &Model, from: usize, styles: Styles, area: Rect, buf: &mut Buffer) {
    let lines = model.blocked();
    if lines.is_empty() {
        line("Nobody waits.", Style::new(), area, 0, buf);
        return;
    }
    let lines = lines.iter().skip(from).map(|line| {
        let style = match (line.circle, line.depth) {
            (true, _) => styles.bad(),
            (_, 0) => styles.heading(),
            _ => Style::new(),
        };
        (format!("{}{}", "  ".repeat(line.depth), line.text), style)
    });
    draw_lines(lines, area, buf);
}

/// As many lines of wrapped text as fit.
fn draw_lines(lines: impl Iterator<Item = (String, Style)>, area: Rect, buf: &mut Buffer) {
    let lines = lines.flat_map(|(text, style)| {
        wrap(&text, area.width.into()).into_iter().map(move |text| (text, style))
    });
    for (at, (text, style)) in (0..area.height).zip(lines) {
        line(&text, style, area, at, buf);
    }
}

fn draw_breaking(breaking: &Breaking, styles: Styles, area: Rect, buf: &mut Buffer) {
    let plain = |text: &str| (text.to_owned(), Style::new());
    let field = |text: &str, open: bool| {
        let end = if open { "_" } else { "" };
        (format!("> {}{end}", clean(text)), styles.heading())
    };
    let mut lines: Vec<_> = breaking.meaning.iter().map(|line| plain(line)).collect();
    lines.extend([plain(""), plain("Reason, for the holder and the log:")]);
    lines.push(field(&breaking.reason, breaking.step == Step::Reason));
    if breaking.step == Step::Fence {
        lines.extend([plain(&breaking.question()), field(&breaking.typed, true)]);
    }
    if let Some(wrong) = breaking.wrong {
        lines.push((wrong.to_owned(), styles.bad()));
    }
    lines.push(("Enter continues, Escape cancels.".to_owned(), styles.dim()));
    draw_box(&format!(" break {} ", clean(&breaking.name)), lines, styles, area, buf);
}

/// A box over the picture. If it does not fit, its beginning is left out: the question is at its end.
fn draw_box(
    title: &str,
    lines: Vec<(String, Style)>,
    styles: Styles,
    area: Rect,
    buf: &mut Buffer,
) {
    let columns = WIDEST_BOX.min(area.width);
    let inner = usize::from(columns.saturating_sub(4)).max(1);
    let wrapped = lines.into_iter().flat_map(|(text, style)| {
        wrap(&text, inner).into_iter().map(move |text| (text, style)).collect::<Vec<_>>()
    });
    let wrapped: Vec<_> = wrapped.collect();
    let room = usize::from(area.height.saturating_sub(2));
    let left_out = wrapped.len().saturating_sub(room);
    let height = u16::try_from(wrapped.len() - left_out).unwrap_or(0) + 2;
    let frame = Rect {
        x: area.x + (area.width - columns) / 2,
        y: area.y + (area.height - height) / 2,
        width: columns,
        height,
    };
    Clear.render(frame, buf);
    let title = fit(title, inner);
    Block::bordered().title(title).border_style(styles.heading()).render(frame, buf);
    let inside = Rect { x: frame.x + 2, y: frame.y + 1, width: columns - 4, height: height - 2 };
    for (at, (text, style)) in (0..).zip(wrapped.into_iter().skip(left_out)) {
        line(&text, style, inside, at, buf);
    }
}

fn line(text: &str, style: Style, area: Rect, at: u16, buf: &mut Buffer) {
    if at < area.height {
        buf.set_stringn(area.x, area.y + at, text, area.width.into(), style);
    }
}
