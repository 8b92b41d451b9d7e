// Ansible managed: sparkthor.cluster
// How many tokens an answer took, as vLLM says in it. The answer is passed on first, as it came; nothing is held back.
// And who used up what the key may take: sparkthor-tokens.service counts, and says so in a file.

import fs from 'fs';

const OVER = '/run/sparkthor-tokens/over.json';
// more than an account of tokens takes
const LONGEST = 400;

function account(text) {
    const prompt = /"usage":\{"(?:prompt|input)_tokens":(\d+)/.exec(text);
    if (!prompt) {
        return '';
    }
    const rest = text.slice(prompt.index, prompt.index + LONGEST);
    const made = /"(?:completion|output)_tokens":(\d+)/.exec(rest);
    return prompt[1] + ' ' + (made ? made[1] : '0');
}

function used(r, data, flags) {
    r.sendBuffer(data, flags);
    if (!data.length) {
        return;
    }
    // the last account counts: a stream may give one with each part
    let found = '';
    const at = data.lastIndexOf('"usage":{');
    if (at >= 0) {
        found = account(data.toString('utf8', at, Math.min(at + LONGEST, data.length)));
    }
    const before = r.variables.sparkthor_rest || '';
    if (!found && before) {
        // it began in a part before this one
        found = account(before + data.toString('utf8', 0, Math.min(LONGEST, data.length)));
    }
    if (found) {
        r.variables.sparkthor_tokens = found;
    }
    // events of a stream end with a line, and most parts are whole events
    const whole = data[data.length - 1] === 10;
    if (!whole || before) {
        const end = data.toString('utf8', Math.max(0, data.length - LONGEST));
        r.variables.sparkthor_rest = whole ? '' : (before + end).slice(-LONGEST);
    }
}

// What the key of a request has too much of. Without the file nobody has, and an end that passed counts no more.
function standing(r) {
    try {
        const own = JSON.parse(fs.readFileSync(OVER, 'utf8'))[r.variables.sparkthor_key];
        return own && own.until * 1000 > Date.now() ? own : undefined;
    } catch (error) {
        return undefined;
    }
}

// nothing but POST takes tokens
function over(r) {
    return r.method === 'POST' && standing(r) ? '1' : '';
}

function overFor(r) {
    const own = standing(r);
    return own ? String(Math.max(1, Math.ceil(own.until - Date.now() / 1000))) : '1';
}

function overText(r) {
    const own = standing(r);
    const month = own && own.period === 'month';
    const kind = month ? 'insufficient_quota' : 'rate_limit_error';
    const ends = own ? new Date(own.until * 1000).toISOString() : '';
    const message = own
        ? 'This key took ' + own.used + ' tokens of ' + own.limit + ' in ' + (month ? 'this month' : 'a minute')
          + '; it may go on at ' + ends + '.'
        : 'Too many requests from this address or with this key; see Retry-After.';
    if (/^\/v1\/messages/.test(r.uri)) {
        return JSON.stringify({type: 'error', error: {type: 'rate_limit_error', message: message}}) + '\n';
    }
    const code = month ? kind : 'rate_limit_exceeded';
    return JSON.stringify({error: {message: message, type: kind, param: null, code: code}}) + '\n';
}

export default {used, over, overFor, overText};
