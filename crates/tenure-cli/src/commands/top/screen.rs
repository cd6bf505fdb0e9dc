//! The terminal: taken over while a [`Screen`] lives, and restored no matter how it ends.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::layout::Rect;
use tokio::sync::mpsc;

use super::draw::{Styles, draw};
use super::model::{Key, Model};

/// The alternate screen without a cursor; and the previous one, with it.
const TAKE: &[u8] = b"\x1b[?1049h\x1b[?25l";
const GIVE_BACK: &[u8] = b"\x1b[?25h\x1b[?1049l";

/// Whether there is something to restore.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What a terminal shows.
pub(super) struct Screen<'a> {
    terminal: Terminal<CrosstermBackend<&'a mut dyn Write>>,
    styles: Styles,
}

impl<'a> Screen<'a> {
    /// Takes the terminal over.
    pub(super) fn open(out: &'a mut dyn Write, styles: Styles) -> io::Result<Screen<'a>> {
        give_back_on_panic();
        enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        let taken = out.write_all(TAKE).and_then(|()| out.flush());
        let opened = taken.and_then(|()| Terminal::new(CrosstermBackend::new(out)));
        match opened {
            Ok(terminal) => Ok(Screen { terminal, styles }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, model: &Model) -> io::Result<()> {
        let styles = self.styles;
        let drawn = self.terminal.draw(|frame| {
            let area = frame.area();
            draw(model, styles, area, frame.buffer_mut());
        });
        drawn.map(drop)
    }

    /// Draws everything again with the next picture.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        // `clear` would ask the terminal for its cursor position, and the answer would arrive among the keys.
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        // Pending output must not come after what restores the terminal.
        let _ = self.terminal.backend_mut().flush();
        give_back();
    }
}

/// Restores the terminal, once. It bypasses the buffer and the lock of standard output: a thread that panicked
/// may have either.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // If the terminal is gone, there is nothing to restore.
        let _ = rustix::io::write(rustix::stdio::stdout(), GIVE_BACK);
        let _ = disable_raw_mode();
    }
}

/// Otherwise the message of a panic would be lost with the picture.
fn give_back_on_panic() {
    let me = std::thread::current().id();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == me {
            give_back();
        }
        before(panic);
    }));
}

/// Input from the terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    Key(Key),
    /// Its size has changed, or it should be drawn again.
    Changed,
}

/// Reads keys on a separate thread, which ends with the process or with the terminal.
pub(super) fn inputs() -> mpsc::UnboundedReceiver<Input> {
    let (give, inputs) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let input = match event {
                Event::Key(key) if key.kind != KeyEventKind::Release => input_of(key),
                Event::Resize(..) => Some(Input::Changed),
                _ => None,
            };
            if let Some(input) = input
                && give.send(input).is_err()
            {
                break;
            }
        }
    });
    inputs
}

fn input_of(key: KeyEvent) -> Option<Input> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(Input::Key(match key.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        KeyCode::Char('l') if control => return Some(Input::Changed),
        KeyCode::Char(_) if control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    }))
}
