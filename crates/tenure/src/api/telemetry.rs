//! Traces, advice and metrics.

use crate::api::tenure::Tenure;
use crate::observe::Advice;

impl Tenure {
    /// The same connection, whose claims carry the trace of their work. `source` is called for each claim that
    /// has no [`trace`](crate::Mutex::trace), and returns a W3C `traceparent`.
    ///
    /// It is stored with the grant, so waiters see it as `tenure.blocked_by.trace`. With
    /// `tracing-opentelemetry` the source takes the context of `tracing::Span::current()`, has a
    /// `TraceContextPropagator` inject it into a map, and returns the map's `traceparent`. It runs on the
    /// caller's thread, so it should be quick. An invalid text is left out.
    ///
    /// All clones of a connection share the source. Only the first one that is set is used.
    ///
    /// ```
    /// # async fn example() -> tenure::Result<()> {
    /// let current = || Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    /// let tenure = tenure::Tenure::connect("memory:").await?.with_trace_source(current);
    /// let hold = tenure.mutex("wallet:0xab").acquire().await?;
    /// let view = tenure.inspect("wallet:0xab").await?.expect("it is held");
    /// assert_eq!(view.holders[0].details.trace, current());
    /// # drop(hold);
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
    /// ```
    #[must_use = "this is the connection with the source"]
    pub fn with_trace_source(
        self,
        source: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Tenure {
        self.handle.core.trace_source.set(source);
        self
    }

    /// How long holds last by group, and which ttl would fit if theirs does not: see [`Advice`].
    ///
    /// Only covers this connection, in this process, since it was made.
    pub fn advice(&self) -> Vec<Advice> {
        self.handle.core.table.reporter.advice()
    }

    /// Sets `tenure_oldest_wait_seconds` and `tenure_oldest_hold_seconds`, which grow while nothing
    /// happens: call it before each scrape, or every few seconds.
    #[cfg(feature = "metrics")]
    pub fn measure_ages(&self) {
        let core = &self.handle.core;
        if !core.forked() {
            core.table.reporter.ages(&core.table.all(), core.world.now());
        }
    }
}
