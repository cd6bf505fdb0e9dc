-- A hold wants to last its ttl from now. Never creates one, never shortens one. For a ttl of 0
-- someone only asks whether it is held.
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
    -- Until now its beginning was its end less its ttl. Should this user not be let on, it only seems to
    -- have begun later.
    since = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000) + left - ttl)
    redis.pcall('SET', KEYS[1], plain:sub(1, 16) ..
      table.concat({ head, since, fence, rest }, ' '), 'KEEPTTL')
  end
  return { 'G', fence, life, 0 }
end
