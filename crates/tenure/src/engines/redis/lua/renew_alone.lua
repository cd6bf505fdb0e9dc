-- A hold is extended to its ttl from now. Never creates a hold, never shortens one. A ttl of 0 only asks
-- whether it is held.
-- KEYS: name, line [, partition]
-- ARGV: 1 terms, 2 id, 3 fence, 4 ttl
local plain = redis.pcall('GET', KEYS[1])
if not plain then return { 'X' } end
if type(plain) == 'string' then
  local head, ttl, since, fence, rest =
    plain:match('^(%d+ %x+ %d+ %d (%d+)) (%d+) (%d+) (.*)$', 17)
  if not head then return redis.error_reply('FOREIGN the key of this name is not ours') end
  if plain:sub(1, 16) ~= ARGV[2] or fence ~= ARGV[3] then return { 'X' } end
  local left = redis.call('PTTL', KEYS[1])
  if left < 1 then return { 'X' } end
  if ARGV[4] == '0' then return { 'G', fence, left, 0 } end
  local life = math.max(left, tonumber(ARGV[4]))
  local time = since == '0' and redis.call('TIME')
  redis.call('PEXPIRE', KEYS[1], string.format('%d', life))
  if time then
    -- Until now, its start was its end minus its ttl. If this user may not write the start, the hold only
    -- appears to have started later.
    since = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000) + left - ttl)
    redis.pcall('SET', KEYS[1], plain:sub(1, 16) ..
      table.concat({ head, since, fence, rest }, ' '), 'KEEPTTL')
  end
  return { 'G', fence, life, 0 }
end
