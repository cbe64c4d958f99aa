//! `rpcrdma top`: a live view of a running server.
//!
//! The server sends only the connections that are visible, in the order that the view has chosen. So a screen costs little,
//! however many connections there are.
//!
//! *Errors.* A server that ends stays on the screen as it was, with a line that says so, and is asked again at each interval.
//! The terminal gets its settings back at every end, also by a signal.

mod model;
mod view;

use std::io::{self, IsTerminal};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use crossterm::{cursor, event, execute, terminal};
use ratatui::Terminal;
use ratatui::backend::{CrosstermBackend, TestBackend};
use ratatui::buffer::Buffer;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use self::model::{Model, Question, Sample};
use super::observed::{Observed, Place, place};
use super::serve::observe::protocol::Order;
use crate::arguments::{Common, some_seconds};
use crate::exit::Failure;
use crate::output;
use crate::signals::StopSignals;

/// Size of the frame of `--once` where nothing says another one.
const FRAME: (u16, u16) = (100, 40);
/// Time for which the thread of keys waits at a time.
const LOOK: Duration = Duration::from_millis(100);

const AFTER_HELP: &str = "\
Keys: q ends; left and right choose the column by which clients are sorted, r reverses the order; up, down, page up, page down, home \
and end move through the clients.

Clients are shown by the control socket only, to root and the user of the server. Percentiles are of the calls in the last interval: \
bounds of buckets that are powers of two, in microseconds. FLIGHT are calls in progress; MEMORY is that of the connection's \
Receives, and of all calls of the client's address.";

/// Show a running server live: clients, calls a second by procedure, latencies
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Top {
    /// State directory, control socket or HOST:PORT of serve --metrics [default: the control socket of the
    /// default state directory]
    #[arg(value_name = "ADDR", value_parser = place)]
    place: Option<Place>,
    /// Time between two looks, in seconds, or with a unit (500ms)
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = some_seconds)]
    interval: Duration,
    /// Print one frame as text, after one interval, and end
    #[arg(long)]
    once: bool,
    /// Order of the clients at first
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = Order::Rate)]
    sort: Order,
}

impl Top {
    pub(crate) async fn run(self, common: Common) -> Result<(), Failure> {
        if common.json {
            return Err(Failure::usage(
                "top has no document: rpcrdma stat --json and rpcrdma clients --json have",
            ));
        }
        let server = Observed::at(self.place.as_ref()).await?;
        let mut model = Model::new(server.name(), self.sort, std::env::var_os("NO_COLOR").is_none());
        if self.once {
            return super::until_signal(self.frame(server, &mut model)).await;
        }
        if !io::stdout().is_terminal() {
            return Err(Failure::usage("top needs a terminal: --once prints one frame as text"));
        }
        self.live(server, model).await
    }

    /// Prints one frame.
    async fn frame(&self, mut server: Observed, model: &mut Model) -> Result<(), Failure> {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let (width, height) = (columns.unwrap_or(FRAME.0), FRAME.1);
        model.resized(height);
        model.take(model.question().ask(&mut server).await?);
        sleep(self.interval).await;
        model.take(model.question().ask(&mut server).await?);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).map_err(|never| match never {})?;
        terminal.draw(|frame| view::draw(frame, model)).map_err(|never| match never {})?;
        let text = lines(terminal.backend().buffer());
        // Without the line of keys, and without the room that a screen has between the list and what is below it.
        let mut rows: Vec<&str> = text.trim_end().lines().collect();
        rows.pop();
        rows.dedup_by(|row, before| row.trim().is_empty() && before.trim().is_empty());
        output::line(rows.join("\n").trim_end())
    }

    async fn live(self, server: Observed, mut model: Model) -> Result<(), Failure> {
        let mut signals = StopSignals::new()?;
        let mut screen = Screen::open().map_err(|error| terminal_failure(&error))?;
        let mut keys = screen.keys();
        let mut server = Some(server);
        let mut asking: Option<Asking> = None;
        let mut due = Instant::now();
        loop {
            screen.draw(&mut model).map_err(|error| terminal_failure(&error))?;
            tokio::select! {
                signal = signals.next() => return Err(Failure::interrupted(signal)),
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => match key_action(key) {
                        Action::End => return Ok(()),
                        Action::Interrupt => return Err(Failure::interrupted("SIGINT")),
                        Action::Change(change) => {
                            change(&mut model);
                            due = Instant::now();
                        }
                        Action::None => {}
                    },
                    Some(_) => {}
                    // The terminal is gone.
                    None => return Ok(()),
                },
                () = sleep_until(due), if asking.is_none() => {
                    due = Instant::now() + self.interval;
                    asking = Some(Box::pin(ask(server.take(), self.place.clone(), model.question())));
                }
                (again, sample) = finished(&mut asking) => {
                    asking = None;
                    server = again;
                    match sample {
                        Ok(sample) => model.take(sample),
                        Err(failure) => model.trouble(failure.to_string()),
                    }
                }
            }
        }
    }
}

/// A question to the server on its way.
type Asking = Pin<Box<dyn Future<Output = (Option<Observed>, Result<Sample, Failure>)> + Send>>;

/// Waits for the answer of a question; for ever if there is none.
async fn finished(asking: &mut Option<Asking>) -> (Option<Observed>, Result<Sample, Failure>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// Asks the server, after a new connection if there is none.
async fn ask(
    server: Option<Observed>,
    place: Option<Place>,
    question: Question,
) -> (Option<Observed>, Result<Sample, Failure>) {
    let mut server = match server {
        Some(server) => server,
        None => match Observed::at(place.as_ref()).await {
            Ok(server) => server,
            Err(failure) => return (None, Err(failure)),
        },
    };
    match question.ask(&mut server).await {
        Ok(sample) => (Some(server), Ok(sample)),
        Err(failure) => (None, Err(failure)),
    }
}

/// The effect of a key.
enum Action {
    None,
    End,
    Interrupt,
    Change(fn(&mut Model)),
}

fn key_action(key: KeyEvent) -> Action {
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Action::Interrupt,
        KeyCode::Char('q') | KeyCode::Esc => Action::End,
        KeyCode::Left => Action::Change(|model| model.sort_by_next(false)),
        KeyCode::Right => Action::Change(|model| model.sort_by_next(true)),
        KeyCode::Char('r') => Action::Change(Model::reverse),
        KeyCode::Up => Action::Change(|model| model.scroll(-1)),
        KeyCode::Down => Action::Change(|model| model.scroll(1)),
        KeyCode::PageUp => Action::Change(|model| model.page(-1)),
        KeyCode::PageDown => Action::Change(|model| model.page(1)),
        KeyCode::Home => Action::Change(|model| model.scroll(isize::MIN)),
        KeyCode::End => Action::Change(|model| model.scroll(isize::MAX)),
        _ => Action::None,
    }
}

fn terminal_failure(error: &io::Error) -> Failure {
    Failure::failed(format!("cannot use the terminal: {error}"))
}

/// The terminal while `top` has it. Dropping the value gives the terminal its settings back.
struct Screen {
    terminal: Terminal<CrosstermBackend<io::Stdout>>,
    /// Whether the thread of keys ends.
    ended: Arc<AtomicBool>,
}

impl Screen {
    fn open() -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        // From here on the drop of this value restores the settings, whatever fails.
        let screen = Self { terminal, ended: Arc::default() };
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    /// Starts the thread that reads keys; it ends soon after the screen.
    fn keys(&self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(16);
        let ended = Arc::clone(&self.ended);
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match event::poll(LOOK) {
                    Ok(false) => {}
                    Ok(true) => match event::read().map(|event| sender.blocking_send(event)) {
                        Ok(Ok(())) => {}
                        _ => return,
                    },
                    Err(_) => return,
                }
            }
        });
        receiver
    }

    fn draw(&mut self, model: &mut Model) -> io::Result<()> {
        model.resized(self.terminal.size()?.height);
        self.terminal.draw(|frame| view::draw(frame, model)).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // The terminal may be gone.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// Returns the text of a frame.
fn lines(buffer: &Buffer) -> String {
    let mut text = String::new();
    for row in buffer.content().chunks(usize::from(buffer.area().width).max(1)) {
        let line: String = row.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
