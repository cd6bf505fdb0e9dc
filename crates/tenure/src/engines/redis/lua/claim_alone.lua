-- A claim asks, or asks again.
-- KEYS: name, line, partition
-- ARGV: 1 terms, 2 'q' if nobody may be here, 'j' if others wait as far as we know, both if it then
-- stands in line without further conditions; 't' if nobody may be here; 3 id, 4 "capacity process
-- weight fixed", 5 ttl, 6 seen, 7 details, 8 "most ticket keep rerun" unless 'q' or 'j'
local mode = ARGV[2]
if mode ~= '' then
  local call, id = redis.call, ARGV[3]
  last = call('HINCRBY', KEYS[3], 'n', '2')
  if last > 1000000000000002 and last - 2 >= tonumber(ARGV[6]) then
    local totals = mode == 'j' and redis.pcall('HGET', KEYS[1], '#')
    -- Nobody here: one number for the ticket, one for the fence, and the plain form of a name.
    if not totals and call('SET', KEYS[1], id .. ARGV[4] .. ' ' .. ARGV[5]
      .. string.format(' 0 %d ', last) .. ARGV[7], 'NX', 'PX', ARGV[5]) then
      return last
    end
    totals = totals or mode == 'q' and redis.pcall('HGET', KEYS[1], '#')
    local capacity, process, rest, weight = ARGV[4]:match('^(%d+) (%x+) ((%d+) .*)$')
    if totals == capacity .. ' 0 ' .. capacity .. ' 0 0' then
      -- Nothing is free and nothing else is to be seen to: to the end of the line.
      local time = call('TIME')
      local now = time[1] * 1000 + math.floor(time[2] / 1000)
      local first = call('ZRANGEBYSCORE', KEYS[2], '0', '(100000000000000', 'LIMIT', '0', '1')[1]
      local holder = call('HMGET', KEYS[1], first:sub(2), 'f' .. first:sub(2))
      local left = holder[2]:match('^%d+ (%d+)') - now
      local ticket, til = string.format('%d', last - 1), now + 60000
      if left > 0 and call('HSETNX', KEYS[1], id, process .. ' ' .. ticket .. ' ' .. rest
        .. ' ' .. ARGV[5] .. string.format(' -1 0 %d %d ', now, til) .. ARGV[7]) == 1 then
        call('ZADD', KEYS[2], ticket, 'w' .. id .. process .. ticket .. weight .. ' ' .. ARGV[5],
          string.format('%d', til + 1e14), 'p' .. id)
        if call('PTTL', KEYS[1]) < 65000 then
          call('PEXPIRE', KEYS[1], '110000')
          call('PEXPIRE', KEYS[2], '110000')
        end
        return { 'W', ticket, call('ZCOUNT', KEYS[2], '1000000000000000', '(' .. ticket),
          string.format('%d', last), left, holder[1], holder[2], now }
      end
    end
  end
end
