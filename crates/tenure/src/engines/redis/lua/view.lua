-- Returns a name as it is stored, and the number of subscribers of each process that has claims there. Only
-- reads.
-- KEYS: name
-- ARGV: 1 terms
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local plain = redis.pcall('GET', KEYS[1])
if not plain then return {} end
if type(plain) == 'string' then return { now, redis.call('PTTL', KEYS[1]), plain } end
local fields = redis.call('HGETALL', KEYS[1])
local flags, channel = ARGV[1]:match('^(%S+) (%S+) ')
local channels, known = {}, {}
for at = 1, #fields, 2 do
  local process = #fields[at] == 16 and fields[at + 1]:match('^%x+')
  if process and not known[process] and #channels < 4000 then
    known[process] = true
    channels[#channels + 1] = channel .. process
  end
end
local how = flags:find('s', 1, true) and 'SHARDNUMSUB' or 'NUMSUB'
-- For a user that may not ask, no claim is left out.
local heard = redis.pcall('PUBSUB', how, unpack(channels))
return { now, fields, heard.err and {} or heard }
