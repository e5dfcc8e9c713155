"""The compiled loops: cascades backwards from motifs and forwards from seeds, greedy coverage, cliques.

Every random choice is a hash of (stream, sample, node or edge), so members of one motif share the choices of their
sample without a table of them, and a sample is the same whoever draws it and when. All in one file because numba's
cache on disk watches the file of the function it compiled only. Importing this module imports numba: do so inside
functions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

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
def _grown(a, size):  # type: ignore[no-untyped-def]
    """`a` with room for `size` entries."""
    if size <= a.size:
        return a
    more = np.empty(max(size, 2 * a.size), np.int32)
    for i in range(a.size):
        more[i] = a[i]
    return more


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
                nodes = _grown(nodes, total + count)
                for q in range(count):
                    nodes[total] = queue[q]
                    total += 1
                lengths = _grown(lengths, rows + 1)
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
            nodes = _grown(nodes, total + entries)
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


@njit(nogil=True, cache=True)
def _contribute(
    s, sign, truncated, nodes, row_ptr, sample_ptr, need, weight, covered, reached, fresh, touched, gain
):  # type: ignore[no-untyped-def]
    """Add (or take away) what sample s gives every node that it does not yet owe to the seeds."""
    left = need[s] - reached[s]
    if left <= 0:
        return
    count = 0
    for row in range(sample_ptr[s], sample_ptr[s + 1]):
        if covered[row]:
            continue
        for q in range(row_ptr[row], row_ptr[row + 1]):
            u = nodes[q]
            if fresh[u] == 0:
                touched[count] = u
                count += 1
            fresh[u] += 1
    for q in range(count):
        u = touched[q]
        if truncated:
            gain[u] += sign * weight[s] * min(left, fresh[u]) / need[s]
        elif fresh[u] >= left:
            gain[u] += sign * weight[s]
        fresh[u] = 0


@njit(nogil=True, cache=True)
def greedy(nodes, row_ptr, sample_ptr, need, weight, truncated, n, k):  # type: ignore[no-untyped-def]
    """k nodes, each the one that adds most; among equals the smallest. Returns them and what each added.

    A sample is worth its weight once `need` of its rows hold a seed, truncated: weight * min(1, rows / need).
    """
    n_rows = row_ptr.size - 1
    index_ptr = np.zeros(n + 1, np.int64)
    for q in range(nodes.size):
        index_ptr[nodes[q] + 1] += 1
    for v in range(n):
        index_ptr[v + 1] += index_ptr[v]
    at = np.empty(n, np.int64)
    for v in range(n):
        at[v] = index_ptr[v]
    rows_of = np.empty(nodes.size, np.int32)
    for row in range(n_rows):
        for q in range(row_ptr[row], row_ptr[row + 1]):
            rows_of[at[nodes[q]]] = row
            at[nodes[q]] += 1
    sample_of = np.empty(n_rows, np.int32)
    for s in range(need.size):
        for row in range(sample_ptr[s], sample_ptr[s + 1]):
            sample_of[row] = s
    gain, fresh, touched = np.zeros(n), np.zeros(n, np.int32), np.empty(n, np.int32)
    covered, reached, chosen = (
        np.zeros(n_rows, np.bool_),
        np.zeros(need.size, np.int32),
        np.zeros(n, np.bool_),
    )
    for s in range(need.size):
        _contribute(
            s,
            1.0,
            truncated,
            nodes,
            row_ptr,
            sample_ptr,
            need,
            weight,
            covered,
            reached,
            fresh,
            touched,
            gain,
        )
    picks, gains = np.empty(k, np.int32), np.empty(k)
    for step in range(k):
        best = -1.0
        for v in range(n):
            if not chosen[v] and gain[v] > best:
                best = gain[v]
        v, room = 0, 1e-9 * max(best, 1.0)  # sums of weights carry rounding
        while chosen[v] or gain[v] < best - room:
            v += 1
        chosen[v] = True
        picks[step], gains[step] = v, gain[v]
        q = index_ptr[v]
        while q < index_ptr[v + 1]:
            s = sample_of[rows_of[q]]
            if reached[s] >= need[s]:
                q += 1
                continue
            _contribute(
                s,
                -1.0,
                truncated,
                nodes,
                row_ptr,
                sample_ptr,
                need,
                weight,
                covered,
                reached,
                fresh,
                touched,
                gain,
            )
            while q < index_ptr[v + 1] and sample_of[rows_of[q]] == s:
                if not covered[rows_of[q]]:
                    covered[rows_of[q]] = True
                    reached[s] += 1
                q += 1
            _contribute(
                s,
                1.0,
                truncated,
                nodes,
                row_ptr,
                sample_ptr,
                need,
                weight,
                covered,
                reached,
                fresh,
                touched,
                gain,
            )
    return picks, gains


@njit(nogil=True, cache=True)
def _has(ptr, neighbours, v, u):  # type: ignore[no-untyped-def]
    """Whether u is in the rising row of v."""
    low, high = ptr[v], ptr[v + 1]
    while low < high:
        middle = (low + high) // 2
        if neighbours[middle] < u:
            low = middle + 1
        else:
            high = middle
    return low < ptr[v + 1] and neighbours[low] == u


@njit(nogil=True, cache=True)
def larger_cliques(cliques, ptr, neighbours):  # type: ignore[no-untyped-def]
    """Cliques [c j] -> cliques [c' j + 1], flat: every neighbour of the last node that is one of all the others, too.

    Returns an array and how much of it is in use. Neighbours are of an acyclic orientation, so that each clique
    comes once.
    """
    size = cliques.shape[1]
    out, total = np.empty(1024, np.int32), 0
    for c in range(cliques.shape[0]):
        last = cliques[c, size - 1]
        for q in range(ptr[last], ptr[last + 1]):
            w = neighbours[q]
            whole = True
            for i in range(size - 1):
                if not _has(ptr, neighbours, cliques[c, i], w):
                    whole = False
                    break
            if whole:
                out = _grown(out, total + size + 1)
                for i in range(size):
                    out[total + i] = cliques[c, i]
                out[total + size] = w
                total += size + 1
    return out, total


@njit(nogil=True, cache=True)
def edges_inside(in_ptr, sources, motif_ptr, members):  # type: ignore[no-untyped-def]
    """The edges of the motifs' induced subgraphs as pairs of places in `members`: source, target, source, ...

    Returns an array and how much of it is in use.
    """
    n = in_ptr.size - 1
    inside, place = np.zeros(n, np.int32), np.empty(n, np.int32)
    out, total = np.empty(1024, np.int32), 0
    for i in range(motif_ptr.size - 1):
        first, end = motif_ptr[i], motif_ptr[i + 1]
        for j in range(first, end):
            inside[members[j]] = i + 1
            place[members[j]] = j
        for j in range(first, end):
            v = members[j]
            out = _grown(out, total + 2 * (end - first))
            if in_ptr[v + 1] - in_ptr[v] > 8 * (end - first):
                for i_other in range(first, end):
                    if _has(in_ptr, sources, v, members[i_other]):
                        out[total], out[total + 1] = i_other, j
                        total += 2
            else:
                for e in range(in_ptr[v], in_ptr[v + 1]):
                    if inside[sources[e]] == i + 1:
                        out[total], out[total + 1] = place[sources[e]], j
                        total += 2
    return out, total
