"""Lua scripts that run inside Redis: each is atomic, so it takes all or nothing.

A meter is a hash: `u` used in all buckets that count, `h` held, `o` and `n` oldest and newest
bucket, `b<number>` used in one, `s` where it is a budget that was seeded; a budget without it
counts nothing until it is. A reservation is a hash of what it holds by meter; the sorted set
of leases has it under the time until which its process has promised to be alive. Amounts travel as
decimal texts and are added by HINCRBY, so they are exact in 64 bits; only the comparison with a
limit is made in doubles, which above 2**53 (9 million dollars in nano-dollars) is good to the next
few units. All keys share a hash tag, so that a Redis cluster keeps them in one slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.gateway.accounts.counters import Shortage, Wanted
from headrace.gateway.accounts.meter import Meter

# place: a meter's used, held and newest bucket, with what counts no more taken out.
# count: adds to a bucket that counts; give_back: ends what a reservation holds, of a meter that
# was evicted meanwhile no more than it has; unseeded: places of budgets to be seeded, if there are.
_COMMON = """
local function field(bucket) return string.format('b%d', bucket) end
local function minus(text)
  if string.sub(text, 1, 1) == '-' then return string.sub(text, 2) end
  return '-' .. text
end
local function place(key, bucket, span)
  local s = redis.call('HMGET', key, 'u', 'h', 'o', 'n')
  local used, held = s[1] or '0', s[2] or '0'
  if not s[4] then return used, held, bucket end
  local oldest, newest = tonumber(s[3]), tonumber(s[4])
  if bucket > newest then newest = bucket end
  local from = newest - span
  if oldest < from then
    local last = math.min(tonumber(s[4]), from - 1)
    for i = oldest, last do
      local v = redis.call('HGET', key, field(i))
      if v then
        if v ~= '0' then redis.call('HINCRBY', key, 'u', minus(v)) end
        redis.call('HDEL', key, field(i))
      end
    end
    if tonumber(s[4]) < from then
      redis.call('HDEL', key, 'o', 'n')
    else
      redis.call('HSET', key, 'o', string.format('%d', from))
    end
    used = redis.call('HGET', key, 'u')
  end
  return used, held, newest
end
local function count(key, bucket, amount)
  redis.call('HINCRBY', key, field(bucket), amount)
  redis.call('HINCRBY', key, 'u', amount)
  local s = redis.call('HMGET', key, 'o', 'n')
  local text = string.format('%d', bucket)
  if not s[1] or bucket < tonumber(s[1]) then redis.call('HSET', key, 'o', text) end
  if not s[2] or bucket > tonumber(s[2]) then redis.call('HSET', key, 'n', text) end
end
local function give_back(record)
  local pairs_ = redis.call('HGETALL', record)
  for i = 1, #pairs_, 2 do
    local key, amount = pairs_[i], pairs_[i + 1]
    if key ~= '.' and amount ~= '0' and redis.call('HEXISTS', key, 'h') == 1 then
      local held = redis.call('HINCRBY', key, 'h', minus(amount))
      if held < 0 then redis.call('HSET', key, 'h', '0') end
    end
  end
  redis.call('DEL', record)
end
local function unseeded(before)
  local out = {'unseeded'}
  for m = 4, #KEYS do
    local kind = ARGV[before + (m - 4) * 6 + 1]
    if kind == 'budget' and redis.call('HEXISTS', KEYS[m], 's') == 0 then
      out[#out + 1] = string.format('%d', m - 4)
    end
  end
  if #out > 1 then return out end
end
"""

# KEYS: leases, mark, record, then meters. ARGV: id, now, lease's end, prefix of records, then for
# each meter: kind (budget, held or rate), wanted, limit, bucket, span, lifetime.
RESERVE = (
    _COMMON
    + """
local unknown = unseeded(4)
if unknown then return unknown end
local late = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[2], 'LIMIT', 0, 20)
for _, id in ipairs(late) do
  give_back(ARGV[4] .. id)
  redis.call('ZREM', KEYS[1], id)
end
if redis.call('EXISTS', KEYS[2]) == 1 then return {'ended'} end
if redis.call('EXISTS', KEYS[3]) == 1 then return {'taken'} end
local short = {'short'}
local newest_of = {}
for m = 4, #KEYS do
  local a = 4 + (m - 4) * 6
  local wanted, limit, span = ARGV[a + 2], tonumber(ARGV[a + 3]), tonumber(ARGV[a + 5])
  local used, held, newest = place(KEYS[m], tonumber(ARGV[a + 4]), span)
  newest_of[m] = newest
  local missing = tonumber(used) + tonumber(held) + tonumber(wanted) - limit
  if missing > 0 then
    local free = ''
    if missing <= tonumber(used) then
      local oldest = tonumber(redis.call('HGET', KEYS[m], 'o') or newest)
      for i = oldest, newest do
        missing = missing - tonumber(redis.call('HGET', KEYS[m], field(i)) or '0')
        if missing <= 0 then free = string.format('%d', i) break end
      end
    end
    short[#short + 1] = string.format('%d', m - 4)
    short[#short + 1] = used
    short[#short + 1] = held
    short[#short + 1] = free
  end
end
if #short > 1 then return short end
redis.call('HSET', KEYS[3], '.', '1')
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
for m = 4, #KEYS do
  local a = 4 + (m - 4) * 6
  local wanted = ARGV[a + 2]
  if ARGV[a + 1] ~= 'rate' then
    redis.call('HINCRBY', KEYS[m], 'h', wanted)
    redis.call('HINCRBY', KEYS[3], KEYS[m], wanted)
  else
    count(KEYS[m], newest_of[m], wanted)
  end
  if ARGV[a + 6] ~= '0' then redis.call('PEXPIRE', KEYS[m], ARGV[a + 6]) end
end
return {'taken'}
"""
)

# KEYS as above. ARGV: id, lifetime of the mark, '1' for an end that had to wait, then for each
# meter: kind, used (of a budget) or difference (of a rate), bucket, span, bucket at reserving,
# lifetime.
END = (
    _COMMON
    + """
local unknown = unseeded(3)
if unknown then return unknown end
if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[2]) then return {'again'} end
give_back(KEYS[3])
redis.call('ZREM', KEYS[1], ARGV[1])
local out = {'ended'}
for m = 4, #KEYS do
  local a = 3 + (m - 4) * 6
  local amount, bucket, span = ARGV[a + 2], tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4])
  local _, _, newest = place(KEYS[m], bucket, span)
  if string.sub(amount, 1, 1) == '-' then
    local was = tonumber(ARGV[a + 5])
    local there = redis.call('HGET', KEYS[m], field(was))
    if there and was >= newest - span then
      if tonumber(there) < -tonumber(amount) then amount = minus(there) end
      if amount ~= '-0' then
        redis.call('HINCRBY', KEYS[m], field(was), amount)
        redis.call('HINCRBY', KEYS[m], 'u', amount)
      end
    end
  elseif amount ~= '0' then
    if bucket >= newest - span then
      count(KEYS[m], bucket, amount)
    elseif ARGV[3] == '0' then
      count(KEYS[m], newest, amount)
    end
  end
  if ARGV[a + 6] ~= '0' then redis.call('PEXPIRE', KEYS[m], ARGV[a + 6]) end
  out[#out + 1] = redis.call('HGET', KEYS[m], 'u') or '0'
end
return out
"""
)

# KEYS: leases. ARGV: lease's end, then ids. A lease that was given up does not come back.
RENEW = """
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], 'XX', ARGV[1], ARGV[i]) end
return 1
"""

# KEYS: leases. ARGV: cursor, what the ids to be given back begin with, prefix of records. One step
# of a scan; gives the next cursor, "0" at the end, and how many were given back. Only from Redis 5
# on may a script write after it has scanned.
GIVE_BACK = (
    _COMMON
    + """
local step = redis.call('ZSCAN', KEYS[1], ARGV[1], 'MATCH', ARGV[2] .. '*', 'COUNT', 200)
local found = step[2]
for i = 1, #found, 2 do
  give_back(ARGV[3] .. found[i])
  redis.call('ZREM', KEYS[1], found[i])
end
return {step[1], string.format('%d', #found / 2)}
"""
)

# KEYS: meters. ARGV for each: bucket, span. Gives used and held of each, and 1 where it is seeded.
READ = (
    _COMMON
    + """
local out = {}
for m = 1, #KEYS do
  local used, held = place(KEYS[m], tonumber(ARGV[m * 2 - 1]), tonumber(ARGV[m * 2]))
  out[#out + 1] = used
  out[#out + 1] = held
  out[#out + 1] = redis.call('HEXISTS', KEYS[m], 's')
end
return out
"""
)

# KEYS: a budget's meter, leases. ARGV: prefix of records, lifetime, then bucket and amount, again
# and again. Seeded once; what running requests hold of it is in their records.
SEED = (
    _COMMON
    + """
if redis.call('HSETNX', KEYS[1], 's', '1') == 0 then return 0 end
for i = 3, #ARGV, 2 do count(KEYS[1], tonumber(ARGV[i]), ARGV[i + 1]) end
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local held = redis.call('HGET', ARGV[1] .. id, KEYS[1])
  if held then redis.call('HINCRBY', KEYS[1], 'h', held) end
end
if ARGV[2] ~= '0' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
"""
)


def kind_of(meter: Meter) -> str:
    """The kind of a meter, for scripts, which treat budgets specially."""
    return "budget" if meter.is_budget else meter.kind


def shortages(reply: Sequence[str], wanted: Sequence[Wanted]) -> tuple[Shortage, ...]:
    """The shortages in a reply of RESERVE that took nothing."""
    found = []
    for place in range(1, len(reply), 4):
        index, used, held, free = reply[place : place + 4]
        meter, amount, limit = wanted[int(index)]
        free_at_ms = meter.window.leaves_ms(int(free)) if free else None
        found.append(Shortage(meter, limit, int(used), int(held), amount, free_at_ms))
    return tuple(found)
