//! The parts that all requests share.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use dlock::Registry;

use crate::activity::Activity;
use crate::pages::Pages;

/// Names the operator who sent a request.
pub(crate) type Who = dyn Fn(&Parts) -> Option<String> + Send + Sync;

pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) elections: Vec<(String, String)>,
    pub(crate) every: Duration,
    pub(crate) who: Option<Arc<Who>>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) pages: Arc<Pages>,
}
