//! The picture on the terminal.

use std::collections::HashSet;
use std::time::Duration;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as TableRow, Table, Wrap};

use super::model::{Focus, Model, Order, Row};
use crate::output::{since, words};

/// Below this width the columns of the function and of the age are left out.
const WIDE_COLUMNS: u16 = 80;

const BAR_WIDTH: u16 = 10;

/// The line of keys, and a shorter one for a narrow terminal.
const KEYS: [&str; 2] =
    [" ↑↓ select  enter open  / filter  s sort  b break  q quit", " / filter  s sort  b break  q quit"];

pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let losses = u16::try_from(model.losses.len()).unwrap_or_default();
    let heights = [Constraint::Length(1), Constraint::Min(1), Constraint::Length(losses), Constraint::Length(1)];
    let [head, table, lost, foot] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(self::head(model), head);
    draw_table(frame, table, model);
    let lines: Vec<_> = model.losses.iter().map(|text| Line::from(format!(" {text}")).red()).collect();
    frame.render_widget(Paragraph::new(lines), lost);
    frame.render_widget(self::foot(model, foot.width), foot);
    match model.focus {
        Focus::Details => {
            if let Some(row) = model.selected() {
                draw_details(frame, row, None);
            }
        }
        Focus::Confirm => match model.row_to_break() {
            Some(row) => draw_details(frame, row, Some(&model.why)),
            None => draw_box(frame, vec![Line::from("This hold is no longer listed.")], " esc back "),
        },
        Focus::Table | Focus::Filter => {}
    }
}

pub(super) fn without_colours(picture: &mut Buffer) {
    for cell in &mut picture.content {
        (cell.fg, cell.bg) = (Color::Reset, Color::Reset);
    }
}

fn head(model: &Model) -> Line<'static> {
    let order = match model.order {
        Order::Waiters => "waiters",
        Order::Age => "age",
        Order::Key => "key",
    };
    let prefix = if model.prefix.is_empty() { String::new() } else { format!(" {}…", model.prefix) };
    let count = model.rows().len();
    // A lock with several holders has a row for each.
    let mut locks = HashSet::new();
    let rows = model.rows();
    let waiting: u64 = rows.iter().filter(|row| locks.insert(&row.lock)).filter_map(|row| row.waiters).sum();
    let more = if model.is_whole { "" } else { " and more (write a prefix)" };
    let line = Line::from(format!(" dlock{prefix}  {count}{more} held, {waiting} waiting, by {order}"));
    if model.is_stale { line.red() } else { line.bold() }
}

fn foot(model: &Model, width: u16) -> Line<'static> {
    match (&model.focus, &model.message) {
        (Focus::Filter, _) => Line::from(format!(" /{}_", model.filter)),
        (_, Some(message)) => Line::from(format!(" {message}")).yellow(),
        _ => {
            let [long, short] = KEYS.map(Line::from);
            if long.width() <= usize::from(width) { long.dim() } else { short.dim() }
        }
    }
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &mut Model) {
    let is_wide = area.width >= WIDE_COLUMNS;
    let elapsed = model.looked.elapsed();
    let rows: Vec<_> = model.rows().into_iter().map(|row| cells(row, elapsed, is_wide)).collect();
    let (names, widths): (&[&str], Vec<_>) = if is_wide {
        let widths = [Constraint::Fill(3), Constraint::Fill(2), Constraint::Fill(2)];
        (
            &["KEY", "HOLDER", "FUNCTION", "FOR", "LEASE", "WAIT"],
            widths.into_iter().chain([9, BAR_WIDTH, 6].map(Constraint::Length)).collect(),
        )
    } else {
        (
            &["KEY", "HOLDER", "LEASE", "WAIT"],
            [Constraint::Fill(2), Constraint::Fill(1)]
                .into_iter()
                .chain([BAR_WIDTH, 5].map(Constraint::Length))
                .collect(),
        )
    };
    let table = Table::new(rows, widths)
        .header(TableRow::new(names.to_vec()).style(Style::new().underlined()))
        .row_highlight_style(Style::new().reversed());
    frame.render_stateful_widget(table, area, &mut model.table);
}

fn cells(row: &Row, elapsed: Duration, is_wide: bool) -> TableRow<'static> {
    let lease = row.lease_left.map(|left| left.saturating_sub(elapsed));
    let waiters = row.waiters.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let mut cells = vec![row.key.clone(), row.place.clone()];
    if is_wide {
        cells.extend([row.function.clone(), row.since_ms.map(|at| words(since(at))).unwrap_or_default()]);
    }
    let mut cells: Vec<_> = cells.into_iter().map(Cell::from).collect();
    cells.push(Cell::from(bar(lease, row.full_lease)));
    cells.push(Cell::from(waiters));
    TableRow::new(cells)
}

/// The lease that is left; it runs down until the next renewal.
fn bar(left: Option<Duration>, full: Duration) -> Line<'static> {
    let Some(left) = left else { return Line::from("session") };
    let share = left.as_secs_f64() / full.as_secs_f64().max(f64::MIN_POSITIVE);
    let filled = (share * f64::from(BAR_WIDTH)).ceil().clamp(0.0, f64::from(BAR_WIDTH));
    let bar = "█".repeat(filled as usize);
    let line = Line::from(format!("{bar:░<width$}", width = usize::from(BAR_WIDTH)));
    if filled < 3.0 { line.red() } else { line.green() }
}

fn draw_details(frame: &mut Frame<'_>, row: &Row, why: Option<&String>) {
    let text = |value: Option<String>| value.unwrap_or_else(|| "–".into());
    let mut lines = vec![
        Line::from(row.key.clone()).bold(),
        Line::from(format!("holder    {}  {}", row.place, row.function)),
        Line::from(format!("for       {}", text(row.since_ms.map(|at| words(since(at)))))),
        Line::from(format!("token     {}", text(row.token.map(|token| token.to_string())))),
        Line::from(format!("hold      {}", text(row.hold.map(|hold| hold.to_string())))),
        Line::from(format!("trace     {}", text(row.trace.clone()))),
        Line::from(format!("waiters   {}", text(row.waiters.map(|count| count.to_string())))),
        Line::from(format!("in store  {}", row.names.join("  "))),
    ];
    if let Some(why) = why {
        lines.insert(0, Line::from("Break it? Until the holder hears of it, two may work under the lock.").red());
        lines.insert(1, Line::from(format!("why       {why}_")));
    }
    // At the border, so that no small window hides them.
    let keys = if why.is_some() { " enter break  esc back " } else { " b break  esc back " };
    draw_box(frame, lines, keys);
}

/// A box over the table.
fn draw_box(frame: &mut Frame<'_>, lines: Vec<Line<'_>>, keys: &'static str) {
    let full = frame.area();
    let (width, height) = (full.width.saturating_sub(4).min(90), full.height.saturating_sub(2).min(14));
    let area = Rect::new((full.width - width) / 2, (full.height - height) / 2, width, height);
    frame.render_widget(Clear, area);
    frame.render_widget(
        Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::bordered().title_bottom(keys)),
        area,
    );
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::watch::model::tests::model;

    fn drawn(model: &mut Model, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn locks_are_drawn_at_any_size() {
        let mut model = model();
        let wide = drawn(&mut model, 100, 10);
        for text in ["3 held, 6 waiting", "KEY", "FUNCTION", "node-3:17", "shop::sell", "███████░░░"]
        {
            assert!(wide.contains(text), "{text} is not in\n{wide}");
        }
        let narrow = drawn(&mut model, 40, 10);
        assert!(narrow.contains("HOLDER") && !narrow.contains("FUNCTION") && narrow.contains("q quit"), "{narrow}");
        model.is_whole = false;
        assert!(drawn(&mut model, 100, 10).contains("3 and more"));
        model.losses.push_front("lost: k of node-3:17".into());
        assert!(drawn(&mut model, 40, 10).contains("lost: k of node-3:17"));
        for (width, height) in [(1, 1), (3, 2), (500, 3)] {
            drawn(&mut model, width, height);
        }
    }

    #[test]
    fn the_bar_of_a_lease_runs_down_between_two_looks() {
        let mut model = model();
        let filled = |model: &mut Model| drawn(model, 100, 10).matches('█').count();
        let before = filled(&mut model);
        model.looked = model.looked.checked_sub(Duration::from_secs(10)).unwrap();
        assert!(filled(&mut model) < before);
    }

    #[test]
    fn details_and_the_question_are_drawn_over_the_table() {
        let mut model = model();
        model.press_all("bweb-3 hangs");
        let asked = drawn(&mut model, 80, 20);
        for text in ["0123456789abcdef", "Break it?", "web-3 hangs_"] {
            assert!(asked.contains(text), "{asked}");
        }
        assert!(drawn(&mut model, 40, 12).contains("enter break  esc back"));
        drawn(&mut model, 2, 1);
    }

    #[test]
    fn a_lease_that_ends_is_red_and_a_session_has_none() {
        let full = Duration::from_secs(30);
        assert_eq!(bar(Some(Duration::ZERO), full).to_string(), "░░░░░░░░░░");
        assert_eq!(bar(Some(full), full).to_string(), "██████████");
        assert_eq!(bar(None, Duration::ZERO).to_string(), "session");
    }
}
