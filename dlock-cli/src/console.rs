//! `dlock console`: the page of `dlock-console` for one store, without a service around it.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use dlock_console::Console;
use serde_json::json;
use tokio::net::TcpListener;

use crate::break_hold::operator;
use crate::cli::{ConsoleArgs, StoreArgs};
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json};
use crate::store::Store;

pub(crate) async fn serve(args: &StoreArgs, words: ConsoleArgs, json: bool) -> Result<Exit, Failure> {
    let ConsoleArgs { listen, any_address, allow_break, elections, every } = words;
    if !listen.ip().is_loopback() && !any_address {
        return Err(Failure::usage(format!(
            "other hosts may reach {listen}, and the page asks for no password: write 127.0.0.1, or --any-address"
        )));
    }
    let store = Store::open(args).await?;
    let mut console = Console::new(&store.registry).every(every);
    for election in elections {
        console = console.election(&store.backend, election);
    }
    if allow_break {
        console = console.breaking(|_| Some(operator()));
    }
    let mut router = console.router();
    if !any_address {
        router = router.layer(from_fn(only_by_address));
    }
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| Failure::usage(format!("--listen {listen}: {error}")))?;
    let address = listener.local_addr().map_err(|error| Failure::usage(format!("--listen {listen}: {error}")))?;
    let url = format!("http://{address}/?store={}", store.backend);
    if json {
        print_json(&json!({ "url": url }))?;
    } else {
        print(&format!("{url}\n"))?;
    }
    let served = axum::serve(listener, router).await;
    served.map_err(|error| Failure::new(Exit::INTERNAL, error.to_string()))?;
    Ok(Exit::OK)
}

/// A page from elsewhere can give its own name the address of this host, and would then read this page as its own.
async fn only_by_address(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if is_address(host) {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "write the address of this host, such as 127.0.0.1, or localhost").into_response()
}

fn is_address(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name == "localhost" || name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn a_page_of_another_name_is_not_answered() {
        for host in ["127.0.0.1:8765", "localhost:8765", "localhost", "[::1]:8765", "127.0.0.1"] {
            assert!(is_address(host), "{host}");
        }
        for host in ["", "evil.example:8765", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example"] {
            assert!(!is_address(host), "{host}");
        }
    }
}
