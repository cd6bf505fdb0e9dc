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
  if last > 1000000000000002 and last - 2 >= tonumber(ARGV[6]) then
    local totals = (mode == 'j' or mode == 'l') and redis.pcall('HGET', KEYS[1], '#')
    -- Nobody here: one number for the ticket, one for the fence, and the plain form of a name.
    if not totals and mode ~= 'l' and call('SET', KEYS[1], id .. ARGV[4] .. ' ' .. ARGV[5]
      .. string.format(' 0 %d ', last) .. ARGV[7], 'NX', 'PX', ARGV[5]) then
      return last
    end
    totals = totals or mode == 'q' and redis.pcall('HGET', KEYS[1], '#')
    local cap, expiry, hold, ends
    if type(totals) == 'string' then
      cap, expiry, hold, ends = totals:match('^(%d+) 0 %1 0 0 (%d+) ((%d+) %d+ %d %d+) ')
    end
    local capacity, process, rest, weight = ARGV[4]:match('^(%d+) (%x+) ((%d+) .*)$')
    -- Now and then the long way, on which places that have ended are swept.
    if cap == capacity and last % 1024 > 2 then
      -- One holds the whole of it, and nothing else is to be seen to: to the end of the line.
      local time = call('TIME')
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      local ticket, til = string.format('%d', last - 1), string.format('%d', now + 60000)
      if ends - now > 0 and expiry - now > 65000 and call('HSETNX', KEYS[1], id, process .. ' '
        .. ticket .. ' ' .. rest .. ' ' .. ARGV[5] .. string.format(' -1 0 %d ', now) .. til .. ' '
        .. ARGV[7]) == 1 then
        call('ZADD', KEYS[2], ticket, 'w' .. id .. process .. ticket .. til .. weight .. ' '
          .. ARGV[5], '10' .. til, 'p' .. id)
        -- Two members for each that waits, and the one that is always there.
        local before = (call('ZCARD', KEYS[2]) - 3) / 2
        return { 'W', ticket, before, string.format('%d', last), ends - now,
          call('HGET', KEYS[1], totals:sub(-16)) or '', hold, now }
      end
    end
  end
end
