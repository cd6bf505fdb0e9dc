-- A claim asks, or asks again.
-- KEYS: name, line, numbers, memory
-- ARGV: 1 'q' if nobody may be here, 'j' if the name has a line as far as we know, 2 id, 3 ttl,
-- 4 "capacity weight fixed ttl process", 5 seen, 6 details, 7 most waiters, 8 ticket, 9 keep of a
-- once, 10 rerun, 11 the totals of a name that is held as a whole, 12 "process ", 13 " weight fixed
-- ttl keep rerun ", and then the last four
if ARGV[1] ~= '' then
  local call, id = redis.call, ARGV[2]
  last = call('INCRBY', KEYS[3], 2)
  if last > 1000000000000002 and last - 2 >= tonumber(ARGV[5]) then
    local totals = ARGV[1] == 'j' and redis.pcall('HGET', KEYS[1], '#')
    -- Nobody here: one number for the ticket, one for the fence, and the plain form of a name.
    if not totals and call('SET', KEYS[1], id .. ARGV[4] .. string.format(' 0 %.0f ', last)
      .. ARGV[6], 'NX', 'PX', ARGV[3]) then
      return last
    end
    totals = totals or redis.pcall('HGET', KEYS[1], '#')
    local flags = ARGV[#ARGV - 3]
    if totals == ARGV[11] and flags:find('wh', 1, true) and not flags:find('n', 1, true)
      and ARGV[7] == '4294967295' then
      -- Nothing is free and nothing else is to be seen to: to the end of the line.
      local time = call('TIME')
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      local first = call('ZRANGEBYSCORE', KEYS[2], '0', '(100000000000000', 'LIMIT', 0, 1)[1]
      local holder = call('HGET', KEYS[1], first:sub(2))
      local left = tonumber(holder:match('^%S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%d+)')) - now
      local ended = call('ZCOUNT', KEYS[2], '100000000000000', string.format('%.0f', now + 1e14))
      local ticket, til = string.format('%.0f', last - 1), now + 60000
      if left > 0 and ended == 0 and call('HSETNX', KEYS[1], id, ARGV[12] .. ticket .. ARGV[13]
        .. string.format('%.0f %.0f 0 0 ', now, til) .. ARGV[6]) == 1 then
        call('ZADD', KEYS[2], ticket, 'w' .. id .. ARGV[12]:sub(1, 16),
          string.format('%.0f', til + 1e14), 'p' .. id)
        if call('PTTL', KEYS[1]) < 60000 then
          call('PEXPIRE', KEYS[1], 110000)
          call('PEXPIRE', KEYS[2], 110000)
        end
        return { 'W', ticket, call('ZCOUNT', KEYS[2], '1000000000000000', '(' .. ticket),
          string.format('%.0f', last), left, holder, now }
      end
    end
  end
end
