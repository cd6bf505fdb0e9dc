-- A claim asks, or asks again.
-- KEYS: name, line, partition
-- ARGV: 1 terms, 2 mode, 3 id .. "capacity process weight fixed ttl", 4 ttl, 5 details, 6 seen, 7 "most ticket
-- keep rerun", left out if it says no more than that the claim may wait
-- Modes: 'q' try to be alone, then to join the line; 'j' the other way round; 't' only the former; 'l'
-- only the latter, where names have no plain form; '' neither. If these fail, the full rule follows.
local mode = ARGV[2]
if mode ~= '' then
  local call, id = redis.call, ARGV[3]:sub(1, 16)
  -- Given to a claim that a group has sent on.
  local place = mode == 'q' and ARGV[7] and ARGV[7]:match('^%d+ (%d+) ')
  last = call('HINCRBY', KEYS[3], 'n', '2')
  if last > 1000000000000002 and last <= 9007199254740991 and last - 2 >= tonumber(ARGV[6])
    and (not place or last - 2 >= tonumber(place)) then
    local found = (mode == 'j' or mode == 'l') and redis.pcall('HMGET', KEYS[1], '#', id)
    -- Nobody holds: take one number for the ticket and one for the fence, and store the name in its plain form.
    if mode ~= 'l' and not (found and (found.err or found[1])) and call('SET', KEYS[1], ARGV[3]
      .. string.format(' 0 %d ', last) .. ARGV[5], 'NX', 'PX', ARGV[4]) then
      return last
    end
    found = found or mode == 'q' and redis.pcall('HMGET', KEYS[1], '#', id)
    local totals = found and not found[2] and found[1]
    local cap, expiry, hold, ends
    if totals then
      cap, expiry, hold, ends = totals:match('^(%d+) 0 %1 0 0 (%d+) ((%d+) %d+ %d %d+) ')
    end
    local capacity, process, rest, weight = ARGV[3]:match('^(%d+) (%x+) ((%d+) .*)$', 17)
    -- Now and then take the full rule, which sweeps places that have ended.
    if cap == capacity and last % 1024 > 2 then
      -- One claim holds the whole capacity and nothing else needs attention: join the end of the line.
      local time = call('TIME')
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      local ticket, til = place or string.format('%d', last - 1), string.format('%d', now + 60000)
      if ends - now > 0 and expiry - now > 65000 then
        -- Two members for each waiting claim, and the one that is always there.
        local before = place and call('ZCOUNT', KEYS[2], '1000000000000000', '(' .. place)
          or (call('ZCARD', KEYS[2]) - 1) / 2
        local holder = call('HGET', KEYS[1], totals:sub(-16)) or ''
        -- In this order: if this user lacks the permission for the second, a place without its claim is ignored.
        call('ZADD', KEYS[2], ticket, 'w' .. id .. process .. ticket .. til .. weight .. ' '
          .. ARGV[4], '10' .. til, 'p' .. id)
        call('HSET', KEYS[1], id, process .. ' ' .. ticket .. ' ' .. rest
          .. string.format(' -1 0 %d ', now) .. til .. ' ' .. ARGV[5])
        return { 'W', ticket, before, string.format('%d', last), ends - now, holder, hold, now }
      end
    end
  end
end
