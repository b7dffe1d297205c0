//! What is on the screen, and what keys do to it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState};

use super::cells::{self, Cells, Kind};
use super::plain;
use super::rates::{self, Sort};
use super::sample::{HOT_TOTALS, Sample, TOTALS};
use super::text::rate;

/// A server that is silent for that much longer than asked to is said to be so.
const SILENCE: Duration = Duration::from_secs(3);
/// A name and a rate.
const TOTAL_WIDTH: u16 = 26;
/// Below these heights there are no totals, and only the table in focus.
const ROOM_FOR_TOTALS: u16 = 16;
/// Totals of hot rows that come before those of the lane.
const FIRST_TOTALS: usize = 15;
const ROOM_FOR_TWO: u16 = 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Focus {
    Rows,
    Waits,
}

/// A table that can be scrolled.
#[derive(Default)]
struct Scroll {
    state: TableState,
    lines: usize,
    page: usize,
}

impl Scroll {
    fn by(&mut self, lines: isize) {
        let last = self.lines.saturating_sub(1);
        let at = self
            .state
            .selected()
            .unwrap_or(0)
            .saturating_add_signed(lines);
        self.state.select(Some(at.min(last)));
    }
}

struct Trouble {
    message: String,
    next_try: Instant,
}

pub struct Screen {
    address: String,
    interval: Duration,
    frame: rates::Frame,
    /// The last sample, shown or not.
    latest: Sample,
    received: Instant,
    sort: Sort,
    paused: bool,
    focus: Focus,
    rows: Scroll,
    waits: Scroll,
    trouble: Option<Trouble>,
}

impl Screen {
    pub fn new(address: String, interval: Duration, first: Sample, sort: Sort) -> Self {
        let mut frame = rates::Frame::new(None, first.clone());
        frame.sort(sort);
        Self {
            address,
            interval,
            frame,
            latest: first,
            received: Instant::now(),
            sort,
            paused: false,
            focus: Focus::Rows,
            rows: Scroll::default(),
            waits: Scroll::default(),
            trouble: None,
        }
    }

    pub fn sample(&mut self, sample: Sample) {
        if !self.paused {
            self.frame = rates::Frame::new(Some(&self.latest), sample.clone());
            self.frame.sort(self.sort);
        }
        self.latest = sample;
        self.received = Instant::now();
        self.trouble = None;
    }

    pub fn trouble(&mut self, message: String, wait: Duration) {
        let next_try = Instant::now() + wait;
        self.trouble = Some(Trouble { message, next_try });
    }

    /// Break: the user has seen enough.
    pub fn key(&mut self, key: KeyEvent) -> ControlFlow<()> {
        if key.kind == KeyEventKind::Release {
            return ControlFlow::Continue(());
        }
        let page = self.focused().page.cast_signed();
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return ControlFlow::Break(());
            }
            KeyCode::Char('q') | KeyCode::Esc => return ControlFlow::Break(()),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.frame.sort(self.sort);
            }
            KeyCode::Tab | KeyCode::BackTab => {
                self.focus = match self.focus {
                    Focus::Rows => Focus::Waits,
                    Focus::Waits => Focus::Rows,
                }
            }
            KeyCode::Up => self.focused().by(-1),
            KeyCode::Down => self.focused().by(1),
            KeyCode::PageUp => self.focused().by(-page),
            KeyCode::PageDown => self.focused().by(page),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn focused(&mut self) -> &mut Scroll {
        match self.focus {
            Focus::Rows => &mut self.rows,
            Focus::Waits => &mut self.waits,
        }
    }

    pub fn draw(&mut self, frame: &mut Frame) {
        let area = frame.area();
        let warning = self.warning();
        let across = (area.width / TOTAL_WIDTH).max(1);
        let totals = if area.height < ROOM_FOR_TOTALS {
            0
        } else {
            let lines = self.totals().len().div_ceil(across.into()) as u16;
            (lines + 1).min(area.height * 3 / 8)
        };
        let (rows, waits) = match self.focus {
            _ if area.height >= ROOM_FOR_TWO => (2, 1),
            Focus::Rows => (1, 0),
            Focus::Waits => (0, 1),
        };
        let [head, alarm, middle, top, bottom, foot] = Layout::vertical([
            Constraint::Length(if area.height < ROOM_FOR_TWO { 1 } else { 2 }),
            Constraint::Length(warning.is_some().into()),
            Constraint::Length(totals),
            Constraint::Fill(rows),
            Constraint::Fill(waits),
            Constraint::Length(1),
        ])
        .areas(area);

        let lines = plain::head(&self.address, &self.frame).map(Line::from);
        frame.render_widget(Text::from_iter(lines).bold(), head);
        if let Some(warning) = warning {
            frame.render_widget(Line::from(warning).white().on_red(), alarm);
        }
        self.draw_totals(frame, middle, across);
        let title = format!(
            "hot rows: {} here, {} on the server, by {}",
            self.frame.rows.len(),
            self.frame.sample.hot_rows,
            self.sort.name()
        );
        let rows = cells::rows(&self.frame);
        draw_table(
            frame,
            top,
            &mut self.rows,
            &rows,
            title,
            self.focus == Focus::Rows,
        );
        let title = format!("waits: {}", self.frame.sample.waits.len());
        let waits = cells::waits(&self.frame);
        draw_table(
            frame,
            bottom,
            &mut self.waits,
            &waits,
            title,
            self.focus == Focus::Waits,
        );
        let paused = if self.paused { "PAUSED  " } else { "" };
        let keys = "q quit  s sort  p pause  Tab other table  ↑ ↓ PgUp PgDn scroll";
        frame.render_widget(Line::from(vec![paused.bold(), keys.dim()]), foot);
    }

    fn warning(&self) -> Option<String> {
        let silent = self.received.elapsed();
        match &self.trouble {
            Some(trouble) => {
                let left = trouble.next_try.saturating_duration_since(Instant::now());
                Some(format!(
                    "next try in {:.0} s: {}",
                    left.as_secs_f64(),
                    trouble.message
                ))
            }
            None if silent > self.interval + SILENCE => {
                Some(format!("no answer for {} s", silent.as_secs()))
            }
            None => None,
        }
    }

    /// The numbers of the totals that there are to see. Those of the lane, if it is used, come
    /// before what tells least of hot rows, as there may be no room for all.
    fn totals(&self) -> Vec<usize> {
        if !self.frame.sample.uses_lane() {
            return (0..HOT_TOTALS).collect();
        }
        let lane = HOT_TOTALS..TOTALS.len();
        (0..FIRST_TOTALS)
            .chain(lane)
            .chain(FIRST_TOTALS..HOT_TOTALS)
            .collect()
    }

    fn draw_totals(&self, frame: &mut Frame, area: Rect, across: u16) {
        let total = |at: usize| {
            let rate = rate(self.frame.totals.as_ref().map(|rates| rates[at]));
            let name = TOTALS[at].replace('_', " ");
            format!("{name:<16}{rate:>8}  ")
        };
        let indices = self.totals();
        let lines = indices.chunks(across.into());
        let text: Text = lines
            .map(|line| Line::from_iter(line.iter().map(|at| total(*at))))
            .collect();
        let block = Block::new()
            .borders(Borders::TOP)
            .title(match self.frame.sample.uses_lane() {
                true => "all hot rows of the server and the lane, per second",
                false => "all hot rows of the server, per second",
            });
        frame.render_widget(Paragraph::new(text).block(block), area);
    }
}

fn draw_table(
    frame: &mut Frame,
    area: Rect,
    scroll: &mut Scroll,
    cells: &Cells,
    title: String,
    is_focused: bool,
) {
    let title = if is_focused {
        title.bold()
    } else {
        title.into()
    };
    let block = Block::new().borders(Borders::TOP).title(title);
    scroll.lines = cells.lines.len();
    scroll.page = block.inner(area).height.saturating_sub(1).into();
    scroll.by(0);
    let fitting = cells.fit(area.width.into());
    let aligned = |texts: Vec<String>| {
        let cells = texts.into_iter().zip(&fitting).map(|(text, (at, _))| {
            let alignment = match cells.columns[*at].kind {
                Kind::Number => Alignment::Right,
                Kind::Word | Kind::Name => Alignment::Left,
            };
            Cell::from(Text::from(text).alignment(alignment))
        });
        Row::new(cells.collect::<Vec<_>>())
    };
    let titles = fitting
        .iter()
        .map(|(at, _)| cells.columns[*at].title.to_owned());
    let header = aligned(titles.collect()).dim();
    let lines = (0..cells.lines.len()).map(|line| aligned(cells.cut(line, &fitting)));
    let widths = fitting
        .iter()
        .map(|(_, width)| Constraint::Length(*width as u16));
    let highlight = if is_focused {
        Style::new().reversed()
    } else {
        Style::new()
    };
    let table = Table::new(lines, widths)
        .header(header)
        .block(block)
        .row_highlight_style(highlight);
    frame.render_stateful_widget(table, area, &mut scroll.state);
}

#[cfg(test)]
mod tests;
