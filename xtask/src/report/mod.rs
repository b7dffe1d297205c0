//! What HTML reports have in common: one file with everything in it, readable on light and on dark.

pub mod chart;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use plotters::style::RGBColor;

use crate::bench::machine::Machine;
use crate::bench::site::Description;

const STYLE: &str = include_str!("report.css");

/// The whole page.
pub fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

pub fn css(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

pub fn legend(entries: impl IntoIterator<Item = (&'static str, RGBColor)>) -> Markup {
    html! {
        div.legend {
            @for (name, color) in entries {
                span { i style={ "background:" (css(color)) } {} (name) }
            }
        }
    }
}

/// How it was measured: `runs` in words, the servers, and what the clients ran.
pub fn conditions<'a>(
    machine: &Machine,
    runs: &str,
    servers: impl Iterator<Item = &'a Description>,
    scripts: &str,
) -> Markup {
    html! {
        h2 { "How it was measured" }
        div.card {
            dl {
                dt { "Machine" } dd { (machine.summary()) }
                dt { "Time" } dd { (machine.time) }
                dt { "Checkout" } dd { code { (machine.checkout) } }
                dt { "Runs" } dd { (runs) }
                @for server in servers {
                    dt { (server.system) }
                    dd {
                        (server.version) " · "
                        @if let Some(build) = &server.build { "txn " code { (build) } " · " }
                        code {
                            @for (name, value) in &server.settings { (name) "=" (value) " " }
                        }
                    }
                }
                dt { "Each client" }
                dd { pre { (scripts) } }
            }
        }
    }
}
