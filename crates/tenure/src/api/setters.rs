//! The setters of the primitives.

/// The setters that every primitive has, one for each of its [`Options`].
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

            /// How long to wait in line. Default: for ever.
            pub fn wait(mut self, wait: std::time::Duration) -> $type {
                self.request.wait = Some(wait);
                self
            }

            /// Whether the watchdog renews the hold. Default: yes.
            pub fn renew(mut self, renew: bool) -> $type {
                self.request.terms.renew = renew;
                self
            }

            /// How often the watchdog renews the hold: at least this often, and at most half of the ttl apart.
            /// Default: a third of the ttl.
            pub fn renew_every(mut self, renew_every: std::time::Duration) -> $type {
                self.request.terms.renew_every = Some(renew_every);
                self
            }

            /// How long the hold is renewed, counted from its grant. Default: no limit.
            pub fn max_hold(mut self, max_hold: std::time::Duration) -> $type {
                self.request.terms.max_hold = Some(max_hold);
                self
            }

            /// How long the name stays taken at least, counted from the grant. Default: zero.
            pub fn hold_for(mut self, hold_for: std::time::Duration) -> $type {
                self.request.terms.hold_for = hold_for;
                self
            }

            /// Join the line only if fewer than this many wait. Default: no limit.
            pub fn max_waiters(mut self, max_waiters: u32) -> $type {
                self.request.claim.max_waiters = max_waiters;
                self
            }

            /// Who makes the claim, shown to others. Default: `host:pid`.
            pub fn owner(mut self, owner: impl Into<String>) -> $type {
                self.request.details().owner = owner.into();
                self
            }

            /// The reason, shown to others. Default: none.
            pub fn reason(mut self, reason: impl Into<String>) -> $type {
                self.request.details().reason = Some(reason.into());
                self
            }

            /// Adds a pair such as a correlation id, shown with the holder and in logs.
            pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> $type {
                self.request.details().meta.push((key.into(), value.into()));
                self
            }

            /// The trace of the work, as a W3C `traceparent`, which waiters are shown.
            /// Default: none.
            pub fn trace(mut self, traceparent: impl Into<String>) -> $type {
                self.request.details().trace = Some(traceparent.into());
                self
            }
        }
    };
}
pub(crate) use setters;

/// The setter of primitives that can continue without the engine.
macro_rules! outage_setter {
    ($type:ident) => {
        impl $type {
            /// What to do when the engine cannot be reached. Default: fail.
            pub fn on_outage(mut self, on_outage: $crate::OnOutage) -> $type {
                self.request.on_outage = on_outage;
                self
            }
        }
    };
}
pub(crate) use outage_setter;
