//! Ways to break how Redis keeps a hold that a process hands over among its own claims.

use super::noticing::SCRIPTS;
use super::table::Mutation;

pub(super) const KEEPING: &[Mutation] = &[
    Mutation {
        breaks: "a hold that is handed over takes a fence back to an earlier one",
        file: "crates/tenure/src/engines/redis/lua/keep_alone.lua",
        find: "if fence < tonumber(held) or fence > given then",
        replace: "if fence > given then",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "a hold with a line takes a fence back to an earlier one",
        file: "crates/tenure/src/engines/redis/lua/keep.lua",
        find: " and fence >= tonumber(e.fence)\n",
        replace: "\n",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "a hold is kept with a fence that nobody was given",
        file: "crates/tenure/src/engines/redis/lua/keep.lua",
        find: "  and (not P or fence <= highest) then",
        replace: "  then",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "a block of fences ends above the clock",
        file: "crates/tenure/src/engines/redis/lua/keep_alone.lua",
        find: "math.min(given + ARGV[5], time[1] * 1000000 + time[2], 9007199254740989)",
        replace: "given + ARGV[5]",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "a block of fences for a name with a line ends above the clock",
        file: "crates/tenure/src/engines/redis/lua/keep.lua",
        find: "math.min(highest + ARGV[5], wall, HIGHEST - 2)",
        replace: "highest + ARGV[5]",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "the fences of a block are given again",
        file: "crates/tenure/src/engines/redis/lua/keep.lua",
        find: "    call('HSET', P, 'n', int(most))\n",
        replace: "",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "the fence that has the hold now is not recorded",
        file: "crates/tenure/src/engines/redis/lua/keep_alone.lua",
        find: "{ head, string.format('%d', since), ARGV[3], details }",
        replace: "{ head, string.format('%d', since), held, details }",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "the fence that has a hold with a line now is not recorded",
        file: "crates/tenure/src/engines/redis/lua/keep.lua",
        find: "e.fence, e.since, e.details = ARGV[3], now, ARGV[7]",
        replace: "e.since, e.details = now, ARGV[7]",
        tests: SCRIPTS,
    },
    Mutation {
        breaks: "what a process was given as a block may be given again by a server that has lost it",
        file: "crates/tenure/src/engines/redis/claims.rs",
        find: "                self.shared.numbers.saw(partition, Fence::new(fences.last));\n",
        replace: "",
        tests: &["--test", "engines", "redis_faults::keeping::"],
    },
    Mutation {
        breaks: "a hold that is handed over is lost while its slot moves",
        file: "crates/tenure/src/engines/redis/claims.rs",
        find: "if reply.as_ref().is_err_and(may_be_moving) {",
        replace: "if false && reply.as_ref().is_err_and(may_be_moving) {",
        tests: &["--test", "engines", "redis_topologies::keeping::"],
    },
];
