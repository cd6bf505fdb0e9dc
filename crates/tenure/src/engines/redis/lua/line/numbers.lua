-- Raises the numbers to the highest that a client has seen and that the name itself has given: the server
-- may have lost the partition and kept the name. Below 1e15 the server has lost its memory. A number more
-- than a day ahead cannot have been seen.
local function raise(seen)
  local given = last and last - 2 or tonumber(call('HGET', P, 'n') or 0)
  if not given then return 'FOREIGN the key of this partition is not ours' end
  highest = last or given
  if given < TICKETS or given < seen or given < top then
    if seen > wall + 86400000000 and given < HIGHEST - 2 then return 'AHEAD the number is more than a day ahead' end
    local lost = given < TICKETS
    if lost or given < top then
      -- Nor may it repeat numbers of the claims that wait.
      local line = call('ZRANGEBYSCORE', Z, '1000000000000000', '+inf')
      if line[1] then top = math.max(top, line[#line]:sub(34, 49) + 1) end
    end
    given = math.max(given, seen, top, lost and wall or 0)
    highest, last = given, nil
    call('HSET', P, 'n', int(highest))
    if lost and flags:find('n', 1, true) then
      call('HSET', P, 'nb', int(now + longest))
    end
  end
  -- A claim takes one for its ticket and one for its fence.
  if given > HIGHEST - 2 then granting = false end
end

-- Refuses the step if this user lacks a permission. Before 7.0 that is found out by trying, in forms that
-- change nothing. `seen`: for a claim or a keep, the numbers continue above it.
local function ready(seen)
  local wrong = P and raise(seen or 0)
  if wrong then return redis.error_reply(wrong) end
  local may, spare = redis.acl_check_cmd, K .. '~'
  if not may then
    may = function(...)
      call(...)
      return true
    end
    -- A write that a full server does not refuse: after it, the server refuses none of the writes that
    -- follow. A claim may be refused, and a keep has done that already.
    if not seen then call('HDEL', spare, '~') end
  end
  local missing = not may('HSET', P or K, 'n', int(highest or 0)) and 'HSET'
    or not may('HDEL', spare, '~') and 'HDEL' or not may('HMGET', spare, '~') and 'HMGET'
    or not may('DEL', spare) and 'DEL' or not may('PEXPIRE', spare, '1') and 'PEXPIRE'
    or not may('ZADD', Z, 'XX', '1', '~') and 'ZADD' or not may('ZREM', Z, '~') and 'ZREM'
    or not may('ZCARD', Z) and 'ZCARD' or not may('ZCOUNT', Z, '0', '0') and 'ZCOUNT'
    or not may('ZRANGEBYSCORE', Z, '0', '0') and 'ZRANGEBYSCORE'
  if missing then
    return redis.error_reply('NOPERM this user may not run ' .. missing .. ' on keys of tenure')
  end
end

-- The next number, never behind the server's clock: a partition that was lost, or returns from another
-- server, must not repeat numbers that were given in the meantime. If it is for a place, it is above the
-- place's ticket and the number that was reserved with it. What this claim itself had reserved is wasted.
local function number(ticket)
  last = nil
  highest = math.max(highest, wall - 1, (ticket or 0) + 1) + 1
  call('HSET', P, 'n', int(highest))
  return int(highest)
end

