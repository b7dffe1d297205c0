//! Tests of the screen: what is drawn at which size, and what each key does.

use super::*;
use crate::sample::{Counters, HotRow, Wait};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn sample(second: i64) -> Sample {
    let counters = |values: &[i64]| Counters {
        life: (0, 0),
        values: values.iter().map(|value| value * second).collect(),
    };
    let row = |number: i64| HotRow {
        relation: "accounts".into(),
        key: Some(format!("{number:_>64}")),
        mode: "group".into(),
        waiting: 7,
        counts: counters(&[1000 - number, 20, 10, 1]),
        handover_us: Some(12.3),
        obstacles: Some("second change 7, page 1".to_owned()),
        ..HotRow::default()
    };
    let wait = |number: i64| Wait {
        pid: number as i32,
        relation: "accounts".into(),
        reason: "ticket".into(),
        age: 1000 * number,
        ..Wait::default()
    };
    Sample {
        version: "16.14".into(),
        database: "bank".into(),
        clock: "12:34:56".into(),
        now: second * 1_000_000,
        transactions: counters(&[5000, 3]),
        hot_rows: 40,
        totals: counters(&[[1234; HOT_TOTALS].as_slice(), &[0; 7]].concat()),
        rows: (0..40).map(row).collect(),
        waits: (1..=30).map(wait).collect(),
        ..Sample::default()
    }
}

fn screen() -> Screen {
    let address = "db.example:5432".to_owned();
    let second = Duration::from_secs(1);
    let mut screen = Screen::new(address, second, sample(1), Sort::Updates);
    screen.sample(sample(2));
    screen
}

fn draw(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let text = terminal.backend().to_string();
    let lines = text.lines().map(|line| line.trim_matches('"').to_owned());
    lines.collect()
}

fn press(screen: &mut Screen, code: KeyCode) -> ControlFlow<()> {
    screen.key(KeyEvent::from(code))
}

#[test]
fn a_terminal_of_the_usual_size_has_everything() {
    let lines = draw(&mut screen(), 80, 24);
    let text = lines.join("\n");
    let head = "bank on db.example:5432 · 5,000 commits/s · 3.0 rollbacks/s";
    assert!(lines[0].starts_with(head), "{text}");
    for part in [
        "PostgreSQL 16.14 · up 2.0s · 12:34:56",
        "early commits      1,234",
        "table full         1,234",
        "hot rows: 40 here, 40 on the server, by updates",
        "updates/s",
        "1,000",
        "12.3 µs",
        "waits: 30",
        "ticket",
        "q quit",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    assert!(text.contains("…"), "{text}");
    assert!(!text.contains(&"_".repeat(64)), "{text}");
}

#[test]
fn a_server_that_uses_the_lane_has_its_totals() {
    let mut screen = screen();
    let mut used = sample(3);
    used.totals.values[HOT_TOTALS] = 77;
    screen.sample(used);
    let text = draw(&mut screen, 80, 24).join("\n");
    for part in [
        "the server and the lane",
        "lane taken            77",
        "lane overflows",
        "early commits",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn every_size_can_be_drawn() {
    let mut screen = screen();
    for trouble in [false, true] {
        if trouble {
            screen.trouble("gone".into(), Duration::from_secs(1));
        }
        for _ in 0..2 {
            for width in [1, 2, 7, 20, 40, 80, 132, 400] {
                for height in [1, 2, 3, 4, 5, 9, 10, 15, 16, 24, 100] {
                    draw(&mut screen, width, height);
                }
            }
            assert!(press(&mut screen, KeyCode::Tab).is_continue());
        }
    }
}

#[test]
fn a_small_terminal_shows_the_table_in_focus() {
    let mut screen = screen();
    let text = draw(&mut screen, 20, 5).join("\n");
    assert!(
        text.contains("hot rows") && !text.contains("waits"),
        "{text}"
    );
    assert!(press(&mut screen, KeyCode::Tab).is_continue());
    let text = draw(&mut screen, 20, 5).join("\n");
    assert!(
        !text.contains("hot rows") && text.contains("waits"),
        "{text}"
    );
}

#[test]
fn an_idle_server_has_an_empty_screen() {
    let nothing = Sample {
        totals: Counters {
            life: (0, 0),
            values: vec![0; TOTALS.len()],
        },
        ..Sample::default()
    };
    let mut screen = Screen::new(String::new(), Duration::ZERO, nothing, Sort::Waiting);
    for code in [
        KeyCode::Down,
        KeyCode::PageDown,
        KeyCode::Up,
        KeyCode::PageUp,
    ] {
        assert!(press(&mut screen, code).is_continue());
        assert!(draw(&mut screen, 80, 24).join("\n").contains("waits: 0"));
    }
}

#[test]
fn keys_scroll_the_table_in_focus_within_its_lines() {
    let mut screen = screen();
    draw(&mut screen, 80, 24);
    let page = screen.rows.page;
    assert!(page > 1);
    let selected = |screen: &Screen| screen.rows.state.selected().unwrap();
    for (code, expected) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::PageDown, page + 1),
        (KeyCode::PageUp, 1),
    ] {
        assert!(press(&mut screen, code).is_continue());
        assert_eq!(selected(&screen), expected);
    }
    for _ in 0..40 {
        assert!(press(&mut screen, KeyCode::PageDown).is_continue());
    }
    assert_eq!(selected(&screen), 39);
    let fewer = Sample {
        rows: sample(3).rows.split_off(38),
        ..sample(3)
    };
    screen.sample(fewer);
    draw(&mut screen, 80, 24);
    assert_eq!(selected(&screen), 1);
    assert_eq!(screen.waits.state.selected(), Some(0));
}

#[test]
fn a_pause_holds_the_picture_and_spans_no_rates() {
    let mut screen = screen();
    assert!(press(&mut screen, KeyCode::Char('p')).is_continue());
    screen.sample(sample(10));
    assert_eq!(screen.frame.sample.now, 2_000_000);
    let text = draw(&mut screen, 80, 24).join("\n");
    assert!(text.contains("PAUSED"), "{text}");
    assert!(press(&mut screen, KeyCode::Char('p')).is_continue());
    screen.sample(sample(11));
    assert_eq!(screen.frame.sample.now, 11_000_000);
    assert_eq!(screen.frame.transactions, Some(vec![5000.0, 3.0]));
}

#[test]
fn trouble_stands_above_the_last_picture_until_a_sample_comes() {
    let mut screen = screen();
    screen.trouble("connection refused".into(), Duration::from_secs(4));
    let lines = draw(&mut screen, 80, 24);
    assert!(lines[2].starts_with("next try in 4 s: connection refused"));
    assert!(lines.join("\n").contains("hot rows: 40"));
    screen.sample(sample(3));
    assert!(
        !draw(&mut screen, 80, 24)
            .join("\n")
            .contains("connection refused")
    );
}

#[test]
fn a_silent_server_is_told_of() {
    let mut screen = screen();
    screen.received = Instant::now().checked_sub(Duration::from_secs(7)).unwrap();
    assert!(draw(&mut screen, 80, 24)[2].starts_with("no answer for 7 s"));
}

#[test]
fn three_keys_quit_and_one_sorts() {
    let mut screen = screen();
    assert!(press(&mut screen, KeyCode::Char('q')).is_break());
    assert!(press(&mut screen, KeyCode::Esc).is_break());
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(screen.key(control_c).is_break());
    assert!(press(&mut screen, KeyCode::Char('c')).is_continue());
    assert!(press(&mut screen, KeyCode::Char('r')).is_continue());
    assert!(press(&mut screen, KeyCode::Char('s')).is_continue());
    let text = draw(&mut screen, 80, 24).join("\n");
    assert!(text.contains("by waiting"), "{text}");
}
