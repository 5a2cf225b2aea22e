exports.pairs = require('./fixtures/pairs.json');
