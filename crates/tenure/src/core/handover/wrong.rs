//! Ways in which the machine could be wrong, each of which the exploration must find.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrong {
    /// A hold whose time is over is handed over.
    AfterDeadline,
    /// A hold is handed over long after the engine was last heard.
    OnStaleContact,
    /// The carrier, which has handed the hold over before, hands it over again; the fence does not matter.
    AnyoneHandsOver,
    /// A turn that nobody takes is never taken back.
    NoFirstLife,
    /// The end of a hold is told to the carrier, not to the claim that has the hold.
    EndToldToCarrier,
    /// An old answer ends the hold.
    OldAnswerEnds,
    /// An old answer prolongs another hold.
    OldAnswerProlongs,
    /// Fences that come late are given.
    LateBlockIsUsed,
    /// Newcomers stand here although others wait.
    NewcomersInAClosedLine,
    /// Once no other process waited, it counts as if none ever did.
    NeverCloses,
    /// Own claims at the engine are overtaken by those here.
    OwnArePassed,
    /// Own claims at the engine count as those of others.
    OwnAreStrangers,
    /// An answer counts from its arrival.
    CountedFromAnswer,
    /// A claim that stood here leaves the engine as if nothing were in doubt.
    DoubtIsDropped,
    /// So does the carrier.
    DoubtOfCarrierIsDropped,
    /// A hold that was extended is handed over.
    AfterExtend,
    /// A claim that stood here joins the engine's line as if it had only come.
    JoinsWithoutTicket,
    /// The hold is left before those who stood here have joined the engine's line.
    LeavesBeforeTheyJoin,
    /// Newcomers get numbers from before the last answer.
    OldBlockIsKept,
    /// A claim that joined the engine's line with an old ticket counts as if it had stood there ever since.
    CountedBeforeItCame,
    /// When the hold has ended, those who wait here are forgotten.
    WaitersAreForgotten,
    /// A hold that nobody wants is not left.
    KeptInReserve,
    /// The hold of a claim that may ask again under the same id is left for it.
    LeavesForALiveClaim,
    /// One turn after the other is given here and not taken, while others wait.
    UntakenInARow,
}
