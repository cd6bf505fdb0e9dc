-- A claim asks, or asks again.
-- KEYS: name, line, partition
-- ARGV: 1 terms, 2 mode, 3 id, 4 "capacity process weight fixed", 5 ttl, 6 seen, 7 details, 8 "most
-- ticket keep rerun" where it says more than that one may wait
-- Modes: 'q' try to be alone, then to join the line; 'j' the other way round; 't' only the first; 'l'
-- only the second, where names have no plain form; '' neither. The full rule follows where these fail.
local mode = ARGV[2]
if mode ~= '' then
  local call, id = redis.call, ARGV[3]
  last = call('HINCRBY', KEYS[3], 'n', '2')
  if last > 1000000000000002 and last <= 9007199254740991 and last - 2 >= tonumber(ARGV[6]) then
    local found = (mode == 'j' or mode == 'l') and redis.pcall('HMGET', KEYS[1], '#', id)
    -- Nobody here: one number for the ticket, one for the fence, and the plain form of a name.
    if mode ~= 'l' and not (found and (found.err or found[1])) and call('SET', KEYS[1], id .. ARGV[4] .. ' ' .. ARGV[5]
      .. string.format(' 0 %d ', last) .. ARGV[7], 'NX', 'PX', ARGV[5]) then
      return last
    end
    found = found or mode == 'q' and redis.pcall('HMGET', KEYS[1], '#', id)
    local totals = found and not found[2] and found[1]
    local cap, expiry, hold, ends
    if totals then
      cap, expiry, hold, ends = totals:match('^(%d+) 0 %1 0 0 (%d+) ((%d+) %d+ %d %d+) ')
    end
    local capacity, process, rest, weight = ARGV[4]:match('^(%d+) (%x+) ((%d+) .*)$')
    -- Now and then the long way, on which places that have ended are swept.
    if cap == capacity and last % 1024 > 2 then
      -- One holds the whole of it, and nothing else is to be seen to: to the end of the line.
      local time = call('TIME')
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      local ticket, til = string.format('%d', last - 1), string.format('%d', now + 60000)
      if ends - now > 0 and expiry - now > 65000 then
        -- Two members for each that waits, and the one that is always there.
        local before = (call('ZCARD', KEYS[2]) - 1) / 2
        local holder = call('HGET', KEYS[1], totals:sub(-16)) or ''
        -- In this order: a place without its claim, should this user not be let on, is none.
        call('ZADD', KEYS[2], ticket, 'w' .. id .. process .. ticket .. til .. weight .. ' '
          .. ARGV[5], '10' .. til, 'p' .. id)
        call('HSET', KEYS[1], id, process .. ' ' .. ticket .. ' ' .. rest .. ' ' .. ARGV[5]
          .. string.format(' -1 0 %d ', now) .. til .. ' ' .. ARGV[7])
        return { 'W', ticket, before, string.format('%d', last), ends - now, holder, hold, now }
      end
    end
  end
end
