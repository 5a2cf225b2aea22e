import { describe, it, beforeEach } from 'node:test';
import assert from 'node:assert/strict';
import sums from '../lib/sums.js';

describe('add', () => {
  let two;
  beforeEach(() => { two = 2; });
  it('adds', () => assert.equal(sums.add(1, two), 3));
  it('adds more', async () => assert.equal(await sums.add(2, two), 4));
});
