"""The compiled loops of sampling: cascades backwards from motifs and forwards from seeds.

Every random choice is a hash of (stream, sample, node or edge), so members of one motif share the choices of their
sample without a table of them, and a sample is the same whoever draws it and when. Importing this module imports numba:
do so inside functions. numba's cache on disk watches the file of the function it compiled only: after a change of
`grown`, touch this one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from classic_ml.influence.clique_loops import grown

SEED, TREE, ANY, MEMBERS = range(4)

_STEP = np.uint64(0x9E3779B97F4A7C15)  # the increment and multipliers of SplitMix64 (Steele, Lea, Flood 2014)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53


@njit(nogil=True, cache=True)
def word(key, i):  # type: ignore[no-untyped-def]
    """Number i of the SplitMix64 sequence that begins at `key`."""
    z = key + np.uint64(i + 1) * _STEP
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return z ^ (z >> _31)


@njit(nogil=True, cache=True)
def uniform(key, i):  # type: ignore[no-untyped-def]
    """Number i of `key`'s sequence in [0, 1)."""
    return np.float64(np.int64(word(key, i) >> _11)) * _UNIT


@njit(nogil=True, cache=True)
def _parent(v, u, in_ptr, sources, odds):  # type: ignore[no-untyped-def]
    """The one node that v listens to in this sample, -1 for none: an edge with probability its weight."""
    first, end = in_ptr[v], in_ptr[v + 1]
    if first == end or u >= odds[end - 1]:
        return -1
    e = first + np.int64(u / odds[end - 1] * (end - first))  # right where weights are equal
    if e < end and u < odds[e] and (e == first or u >= odds[e - 1]):
        return sources[e]
    low, high = first, end - 1
    while low < high:
        middle = (low + high) // 2
        if u < odds[middle]:
            high = middle
        else:
            low = middle + 1
    return sources[low]


@njit(nogil=True, cache=True)
def _reverse(  # type: ignore[no-untyped-def]
    root, key, independent, in_ptr, sources, odds, mark, stamp, queue, inside, here
):
    """All nodes that reach `root` over live edges, itself first, in queue[:returned]; each once, cycles included.

    With here > 0 only through nodes u with inside[u] == here.
    """
    mark[root] = stamp
    queue[0] = root
    count = 1
    head = 0
    while head < count:
        v = queue[head]
        head += 1
        if independent:
            for e in range(in_ptr[v], in_ptr[v + 1]):
                u = sources[e]
                if mark[u] != stamp and (here == 0 or inside[u] == here) and uniform(key, e + 1) < odds[e]:
                    mark[u] = stamp
                    queue[count] = u
                    count += 1
        else:
            u = _parent(v, uniform(key, v + 1), in_ptr, sources, odds)
            if u >= 0 and mark[u] != stamp and (here == 0 or inside[u] == here):
                mark[u] = stamp
                queue[count] = u
                count += 1
    return count


@njit(nogil=True, cache=True)
def _motif_of(key, cumulative):  # type: ignore[no-untyped-def]
    """A motif with probability proportional to its value."""
    low, high = 0, cumulative.size - 1
    u = uniform(key, 0) * cumulative[high]
    while low < high:
        middle = (low + high) // 2
        if u < cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    return low


@njit(nogil=True, cache=True)
def _reach_inside(  # type: ignore[no-untyped-def]
    first, end, key, independent, in_ptr, sources, odds, members, mark, stamp, queue, inside, here, inner
):
    """inner[v] = members that member v reaches over live edges within the motif. Returns the last stamp used."""
    for j in range(first, end):
        inside[members[j]] = here
        inner[members[j]] = 0
    for j in range(first, end):
        stamp += 1
        count = _reverse(
            members[j], key, independent, in_ptr, sources, odds, mark, stamp, queue, inside, here
        )
        for q in range(count):
            inner[queue[q]] += 1
    return stamp


@njit(nogil=True, cache=True)
def draw(  # type: ignore[no-untyped-def]
    kind, stream, first, last, independent, in_ptr, sources, odds, motif_ptr, members, thresholds, cumulative
):
    """Reverse reachable sets of samples first .. last - 1.

    Returns the nodes of all rows and how many there are, the rows' lengths and how many there are, each sample's motif.
    Arrays may be longer than what is in use. Samples of MEMBERS have a row a member,
    in the motif's order; the others one row, which may be empty: SEED holds the nodes that alone reach the threshold,
    TREE those that reach a member which reaches the threshold inside the motif, ANY those that reach a member.
    """
    n = in_ptr.size - 1
    mark, seen, inside = np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32)
    queue, entry = np.empty(n, np.int32), np.empty(n, np.int32)
    times, inner = np.zeros(n, np.int32), np.zeros(n, np.int32)
    nodes, total = np.empty(1024, np.int32), 0
    lengths, rows = np.empty(last - first, np.int32), 0
    motifs = np.empty(last - first, np.int32)
    stamp = 0
    for s in range(first, last):
        key = word(stream, s)
        motif = _motif_of(key, cumulative)
        motifs[s - first] = motif
        a, b = motif_ptr[motif], motif_ptr[motif + 1]
        here = s - first + 1
        if kind == TREE:
            stamp = _reach_inside(
                a,
                b,
                key,
                independent,
                in_ptr,
                sources,
                odds,
                members,
                mark,
                stamp,
                queue,
                inside,
                here,
                inner,
            )
        entries = 0
        for j in range(a, b):
            if kind == TREE and inner[members[j]] < thresholds[motif]:
                continue
            stamp += 1
            count = _reverse(
                members[j], key, independent, in_ptr, sources, odds, mark, stamp, queue, inside, 0
            )
            if kind == MEMBERS:
                nodes = grown(nodes, total + count)
                for q in range(count):
                    nodes[total] = queue[q]
                    total += 1
                lengths = grown(lengths, rows + 1)
                lengths[rows] = count
                rows += 1
                continue
            for q in range(count):
                u = queue[q]
                if seen[u] != here:
                    seen[u] = here
                    times[u] = 0
                    entry[entries] = u
                    entries += 1
                times[u] += 1
        if kind != MEMBERS:
            need = thresholds[motif] if kind == SEED else 1
            nodes = grown(nodes, total + entries)
            before = total
            for q in range(entries):
                if times[entry[q]] >= need:
                    nodes[total] = entry[q]
                    total += 1
            lengths[rows] = total - before
            rows += 1
    return nodes, total, lengths, rows, motifs


@njit(nogil=True, cache=True)
def evaluate(  # type: ignore[no-untyped-def]
    is_seed,
    stream,
    first,
    last,
    independent,
    in_ptr,
    sources,
    odds,
    motif_ptr,
    members,
    thresholds,
    cumulative,
):
    """Sums and sums of squares [5] over samples of L_tree, L_seed, the event itself, U_min, U_any."""
    n = in_ptr.size - 1
    mark, seen, inside = np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32)
    queue, times, inner = np.empty(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32)
    sums, squares, value = np.zeros(5), np.zeros(5), np.empty(5)
    stamp = 0
    for s in range(first, last):
        key = word(stream, s)
        motif = _motif_of(key, cumulative)
        a, b, need = motif_ptr[motif], motif_ptr[motif + 1], thresholds[motif]
        here = s - first + 1
        stamp = _reach_inside(
            a, b, key, independent, in_ptr, sources, odds, members, mark, stamp, queue, inside, here, inner
        )
        reached, alone, tree = 0, False, False
        for j in range(a, b):
            stamp += 1
            count = _reverse(
                members[j], key, independent, in_ptr, sources, odds, mark, stamp, queue, inside, 0
            )
            hit = False
            for q in range(count):
                u = queue[q]
                if is_seed[u]:
                    hit = True
                    if seen[u] != here:
                        seen[u] = here
                        times[u] = 0
                    times[u] += 1
                    alone = alone or times[u] >= need
            if hit:
                reached += 1
                tree = tree or inner[members[j]] >= need
        value[0], value[1] = tree, alone
        value[2], value[3], value[4] = reached >= need, min(1.0, reached / need), reached > 0
        for c in range(5):
            sums[c] += value[c]
            squares[c] += value[c] * value[c]
    return sums, squares


@njit(nogil=True, cache=True)
def simulate(  # type: ignore[no-untyped-def]
    seeds, stream, first, last, independent, out_ptr, targets, weights, node_ptr, motifs, thresholds, values
):
    """Forward runs first .. last - 1 from the seeds: thresholds ("lt") or coins ("ic").

    `motifs[node_ptr[v] : node_ptr[v + 1]]` are the motifs of node v. Returns the active nodes of each run, each run's
    sum of the values of activated motifs, and how often each node was active.
    """
    n = out_ptr.size - 1
    active, pressed = np.zeros(n, np.int32), np.zeros(n, np.int32)
    pressure, queue = np.zeros(n), np.empty(n, np.int32)
    counted, members_active = np.zeros(thresholds.size, np.int32), np.zeros(thresholds.size, np.int32)
    sizes, gains = np.empty(last - first, np.int32), np.zeros(last - first)
    often = np.zeros(n, np.int64)
    for run in range(first, last):
        key = word(stream, run)
        here = run - first + 1
        count, head, gain = 0, 0, 0.0
        for q in range(seeds.size):
            active[seeds[q]] = here
            queue[count] = seeds[q]
            count += 1
        while head < count:
            u = queue[head]
            head += 1
            often[u] += 1
            for q in range(node_ptr[u], node_ptr[u + 1]):
                i = motifs[q]
                if counted[i] != here:
                    counted[i] = here
                    members_active[i] = 0
                members_active[i] += 1
                if members_active[i] == thresholds[i]:
                    gain += values[i]
            for e in range(out_ptr[u], out_ptr[u + 1]):
                v = targets[e]
                if active[v] == here:
                    continue
                if independent:
                    turns = uniform(key, e + 1) < weights[e]
                else:
                    if pressed[v] != here:
                        pressed[v] = here
                        pressure[v] = 0.0
                    pressure[v] += weights[e]
                    turns = pressure[v] > uniform(key, v + 1)
                if turns:
                    active[v] = here
                    queue[count] = v
                    count += 1
        sizes[run - first] = count
        gains[run - first] = gain
    return sizes, gains, often
