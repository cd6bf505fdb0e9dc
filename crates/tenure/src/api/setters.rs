//! The setters of the primitives.

/// The setters that every primitive has: one line each, into its [`Options`].
macro_rules! setters {
    ($type:ident) => {
        impl $type {
            /// Replaces all options.
            pub fn options(mut self, options: $crate::Options) -> $type {
                self.request.set(options);
                self
            }

            /// How long the hold lasts without renewal. Default: 30 s.
            pub fn ttl(mut self, ttl: std::time::Duration) -> $type {
                self.request.claim.ttl = ttl;
                self
            }

            /// How long to stand in line. Default: for ever.
            pub fn wait(mut self, wait: std::time::Duration) -> $type {
                self.request.wait = Some(wait);
                self
            }

            /// Whether the watchdog renews the hold. Default: yes.
            pub fn renew(mut self, renew: bool) -> $type {
                self.request.terms.renew = renew;
                self
            }

            /// How often the watchdog renews the hold, at least; half of the ttl is the longest.
            /// Default: a third of the ttl.
            pub fn renew_every(mut self, renew_every: std::time::Duration) -> $type {
                self.request.terms.renew_every = Some(renew_every);
                self
            }

            /// The longest that the hold is renewed for, counted from its grant. Default: no limit.
            pub fn max_hold(mut self, max_hold: std::time::Duration) -> $type {
                self.request.terms.max_hold = Some(max_hold);
                self
            }

            /// The shortest that the name stays taken, counted from the grant. Default: zero.
            pub fn hold_for(mut self, hold_for: std::time::Duration) -> $type {
                self.request.terms.hold_for = hold_for;
                self
            }

            /// Join the line only if fewer than this many wait. Default: no limit.
            pub fn max_waiters(mut self, max_waiters: u32) -> $type {
                self.request.claim.max_waiters = max_waiters;
                self
            }

            /// Who asks, as others see it. Default: `host:pid`.
            pub fn owner(mut self, owner: impl Into<String>) -> $type {
                self.request.details().owner = owner.into();
                self
            }

            /// Why, as others see it. Default: none.
            pub fn reason(mut self, reason: impl Into<String>) -> $type {
                self.request.details().reason = Some(reason.into());
                self
            }

            /// Adds a pair such as a correlation id, shown with the holder and in the logs.
            pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> $type {
                self.request.details().meta.push((key.into(), value.into()));
                self
            }

            /// Where this work is traced, as a W3C `traceparent`: who waits for it can be led there.
            /// Default: none.
            pub fn trace(mut self, traceparent: impl Into<String>) -> $type {
                self.request.details().trace = Some(traceparent.into());
                self
            }
        }
    };
}
pub(crate) use setters;

/// The setter of those that may go on without the engine.
macro_rules! outage_setter {
    ($type:ident) => {
        impl $type {
            /// What to do when the engine cannot be reached. Default: it is an error.
            pub fn on_outage(mut self, on_outage: $crate::OnOutage) -> $type {
                self.request.on_outage = on_outage;
                self
            }
        }
    };
}
pub(crate) use outage_setter;
