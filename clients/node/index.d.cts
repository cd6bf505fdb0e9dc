/** Milliseconds, or a text such as `"250ms"`, `"10s"`, `"2m"`, `"1h"`, `"1d"`. */
export type Duration = number | `${number}${"ms" | "s" | "m" | "h" | "d"}`;

export interface ConnectOptions {
    /** Sent as `Authorization: Bearer`, where the server has tokens. */
    token?: string;
    /** Prepended to every name, with a `/`. */
    ns?: string;
    /** Who holds or waits, as others see it. Default: `host:pid`. */
    owner?: string;
    /** How long a hold lasts without a renewal. Default: `"30s"`. */
    ttl?: Duration;
    /** How long to wait in line. Default: `Infinity`. */
    wait?: Duration;
    /** How long to try to reach a server that does not answer, for calls whose `wait` has no end. Default: `"15s"`. */
    patience?: Duration;
    /** A main loop that is silent for longer than this counts as hung: its holds are not renewed. Default: `"60s"`. */
    maxBlock?: Duration;
    /** How long one request may take, beyond the time that it waits in line. Default: `"5s"`. */
    requestTimeout?: Duration;
    /** Where holds are renewed. On `"main"`, a blocked event loop loses them. Default: `"worker"`. */
    thread?: "worker" | "main";
    /** The certificate authority of an `https` server, in PEM, if it is not a public one. */
    ca?: string | Buffer;
    /**
     * Receives what happens, for logs. Nothing waits for it; errors that it throws or rejects with become process
     * warnings.
     */
    onEvent?: (event: TenureEvent) => void | Promise<void>;
}

export interface ClaimOptions {
    ttl?: Duration;
    wait?: Duration;
    owner?: string;
    /** Why it is held, as others see it. */
    reason?: string;
    /** Pairs such as a correlation id, as others see them. */
    meta?: Record<string, string>;
    /** Fails with `full` rather than join a line with this many waiters or more. */
    maxWaiters?: number;
    /** Gives up and leaves the line. In `run` it also aborts the `signal` of the work. */
    signal?: AbortSignal;
}

/** Who holds a name. */
export interface Holder {
    owner: string;
    fence: number;
    weight: number;
    heldMs: number;
    leftMs: number;
    reason?: string;
    value?: string;
    meta?: Record<string, string>;
}

/** How a hold ended without being released. */
export type Ended =
    | "expired" | "broken" | "forgotten" | "clock_step" | "conflict" | "elsewhere" | "other_engine" | "closed";

export type ErrorCode =
    /** Others hold it, and the wait is over. Has `holder`, and `position` after a wait. */
    | "busy"
    /** The hold ended without being released. Has `ended`, and `by` and `reason` if it was broken. */
    | "lost"
    /** The server or its engine does not answer. Nothing happened. */
    | "unavailable"
    /** No answer. It may have happened. */
    | "in_doubt"
    /** `close()` was called. */
    | "closed"
    | "unauthorized" | "forbidden" | "invalid" | "conflict" | "unsettled" | "other_content" | "full" | "too_many"
    | "too_large" | "not_found" | "misdirected"
    /** The answer does not come from a tenure server of this version: a proxy's page, say. */
    | "unreadable"
    | (string & {});

export class TenureError extends Error {
    readonly code: ErrorCode;
    /** The name of the lock, election or once. */
    readonly resource?: string;
    /** The status of the answer, if there was one. */
    readonly status?: number;
    readonly holder?: Holder;
    /** 1 is the next in line. */
    readonly position?: number;
    readonly fence?: number;
    readonly ended?: Ended | (string & {});
    readonly by?: string;
    readonly reason?: string;
}

export type TenureEvent =
    | { event: "acquired"; name: string; fence: number; waited: number }
    | { event: "elected"; name: string; fence: number }
    | { event: "busy"; name: string; holder?: Holder }
    /** Every 20 s of waiting. */
    | { event: "waiting"; name: string; position: number; holder?: Holder }
    | { event: "released"; name: string; fence: number }
    /** A release that came too late: the ttl is too short, or the program was stopped. */
    | { event: "expired_before_release"; name: string; fence: number }
    | { event: "lost"; name: string; fence: number; ended: string; error: TenureError }
    | { event: "renewal_failed"; name: string; fence: number; failure: string; remaining: number }
    /** A release was not answered: the hold ends by itself. */
    | { event: "release_failed"; name: string; fence?: number; error: Error }
    /** The worker failed: holds are renewed on the main thread from now on. */
    | { event: "main_thread"; error: Error };

export interface Hold {
    readonly name: string;
    /** A number that rises with every grant of the name: pass it to whatever you write to. */
    readonly fence: number;
    /** How long it took to get it, in ms. */
    readonly waited: number;
    /** Aborts when it is lost, before anyone else can hold it; its reason is a `TenureError`. Does not abort on release. */
    readonly signal: AbortSignal;
    /** Whether it was lost. False after a release. */
    readonly lost: boolean;
    /** How long it is certainly held even if no further renewal is answered, in ms. 0 once it has ended. */
    readonly remaining: number;
    /** The same, as a time of `Date.now()`. */
    readonly deadline: number;
    /** Throws if it is lost or released. For code that blocks the event loop, which counts as alive while it calls this. */
    readonly check: () => void;
    /** Resolves to true if this freed it, to false if it had already ended. Also after `close()`. */
    release(): Promise<boolean>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** What the work of `run` gets. */
export interface Held {
    readonly fence: number;
    /** Aborts when the hold is lost, or when the caller's `signal` aborts. */
    readonly signal: AbortSignal;
    readonly check: () => void;
    readonly hold: Hold;
}

export interface Lock {
    readonly name: string;
    /** Waits in line. Throws `busy` when `wait` is over. */
    acquire(options?: ClaimOptions): Promise<Hold>;
    /** Returns null if others hold it. Never waits in line. */
    tryAcquire(options?: Omit<ClaimOptions, "wait">): Promise<Hold | null>;
    /** Acquires, runs, releases. Rejects with `lost`, once `fn` has ended, if the hold was lost meanwhile. */
    run<T>(fn: (held: Held) => T | Promise<T>, options?: ClaimOptions): Promise<T>;
}

export interface ElectOptions extends ClaimOptions {
    /** What others may know of the leader, such as its address. */
    value?: string;
}

export interface Leader {
    name: string;
    term: number;
    owner: string;
    value?: string;
    ledMs: number;
    leftMs: number;
}

export interface Election {
    readonly name: string;
    /** Waits until it leads. The fence is the number of the term; releasing the hold resigns. */
    campaign(options?: ElectOptions): Promise<Hold>;
    /** Campaigns, works while it leads, campaigns again after every loss. Ends, and resigns, when the work does. */
    run<T>(fn: (held: Held & { readonly term: number }) => T | Promise<T>, options?: ElectOptions): Promise<T>;
    /** Who leads now, or null. */
    leader(): Promise<Leader | null>;
}

export interface OnceOptions extends ClaimOptions {
    /** The input of the work: the same key with different content fails with `other_content`. */
    content?: string;
    /** How long the outcome is remembered. Default: `"24h"`. */
    keep?: Duration;
    /** Run work again that was begun and never settled. */
    rerun?: boolean;
}

export interface Once {
    readonly name: string;
    /** Runs `fn` if nobody has, and stores what it returns as JSON of at most 32 KiB: `true`, if it returns nothing. */
    run<T>(fn: (held: Held) => T | Promise<T>, options?: OnceOptions): Promise<{
        outcome: T extends null | undefined | void ? true : T;
        replayed: boolean;
    }>;
}

/** A name in use. */
export interface View {
    name: string;
    kind: string;
    capacity: number;
    holders: Holder[];
    waiters: { owner: string; ticket: number; weight: number; waitedMs: number; reason?: string }[];
    record?: { settled: boolean; ageMs: number; remainingMs: number; outcome?: unknown };
}

export interface Tenure {
    /** Which thread renews; null before the first hold. */
    readonly thread: "worker" | "main" | null;
    mutex(name: string, options?: ClaimOptions): Lock;
    /** `permits` at a time; every program must give the same number. */
    semaphore(name: string, permits: number, options?: ClaimOptions & { weight?: number }): Lock;
    rwlock(name: string, options?: ClaimOptions): {
        /** Shared among readers. */
        read(options?: ClaimOptions): Lock;
        /** Exclusive. */
        write(options?: ClaimOptions): Lock;
    };
    elect(name: string, options?: ElectOptions): Election;
    once(key: string, options?: OnceOptions): Once;
    /** The holders and the line of a name, or null if it is not in use. */
    inspect(name: string, options?: { kind?: "lock" | "election" | "once" }): Promise<View | null>;
    /** Whether the server and its engine answer now: for health checks. Never throws. */
    ready(): Promise<boolean>;
    /**
     * Waits in line end with `closed`. Holds are lost to this program (`ended` is `closed`), so that their work stops. A
     * hold that is released after that, by `release()` or by the end of `run`, is free at once; the others end with their
     * ttl, because their work may still be running. Waits for the work of `run`, whose holds are renewed meanwhile, for
     * at most `wait`. Default: `"5s"`.
     */
    close(options?: { wait?: Duration }): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Opens no connection yet: the first request does. Also `https://…`, or `http+unix:/PATH`. Default:
 * `http://127.0.0.1:7117`.
 */
export function connect(url?: string, options?: ConnectOptions): Tenure;
