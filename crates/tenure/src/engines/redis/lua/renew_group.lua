-- Extends holds to their ttl from now, for names that, as far as the client knows, are in their plain form. Never creates a
-- hold, and never shortens one.
-- KEYS: the names
-- ARGV: three arguments for each name: id, fence, ttl
-- Returns one number for each name: how many milliseconds its hold lasts from now. 0 means that this renewal was not done
-- and must be sent by itself. An error must not stop the script, because the renewals before it would have no answer.
local KEYS, ARGV, pcall, format = KEYS, ARGV, redis.pcall, string.format
local answers, time = {}, nil
local found = pcall('MGET', unpack(KEYS))
for at = 1, #KEYS do
  local key, arg = KEYS[at], at * 3 - 2
  local plain = found[at]
  if found.err then plain = pcall('GET', key) end
  answers[at] = 0
  if type(plain) == 'string' and plain:sub(1, 16) == ARGV[arg] then
    local head, ttl, since, fence, rest = plain:match('^(%d+ %x+ %d+ %d (%d+)) (%d+) (%d+) (.*)$', 17)
    local left = fence == ARGV[arg + 1] and pcall('PTTL', key)
    if type(left) == 'number' and left > 0 then
      local life = math.max(left, tonumber(ARGV[arg + 2]))
      if pcall('PEXPIRE', key, format('%d', life)) == 1 then
        answers[at] = life
        if since == '0' then
          -- The start is not stored before the first renewal, because it is the end minus the ttl. If this user may not
          -- write it, the hold only appears to have started later.
          time = time or pcall('TIME')
          if time[1] then
            since = format('%d', time[1] * 1000 + math.floor(time[2] / 1000) + left - ttl)
            pcall('SET', key, ARGV[arg] .. table.concat({ head, since, fence, rest }, ' '), 'KEEPTTL')
          end
        end
      end
    end
  end
end
return answers
