import unittest

from roombook.interval import Interval, merge


def intervals(*texts):
    return [Interval.parse(text) for text in texts]


class ParseTest(unittest.TestCase):
    def test_reads_hours_and_minutes(self):
        self.assertEqual(Interval.parse("9:05-10:30"), Interval(545, 630))

    def test_writes_what_it_reads(self):
        self.assertEqual(str(Interval.parse("09:00-24:00")), "09:00-24:00")

    def test_refuses_what_is_no_time(self):
        for text in ("", "9-10", "10:00-9:00", "9:00-9:00", "9:60-10:00", "23:00-25:00"):
            with self.subTest(text), self.assertRaises(ValueError):
                Interval.parse(text)


class OverlapTest(unittest.TestCase):
    def test_with_a_minute_in_common(self):
        first, second = intervals("9:00-10:00", "9:59-11:00")
        self.assertTrue(first.overlaps(second))
        self.assertTrue(second.overlaps(first))

    def test_not_back_to_back(self):
        first, second = intervals("9:00-10:00", "10:00-11:00")
        self.assertFalse(first.overlaps(second))
        self.assertFalse(second.overlaps(first))

    def test_one_within_the_other(self):
        outer, inner = intervals("9:00-12:00", "10:00-11:00")
        self.assertTrue(outer.overlaps(inner))


class MergeTest(unittest.TestCase):
    def test_nothing(self):
        self.assertEqual(merge([]), [])

    def test_keeps_what_lies_apart_in_order(self):
        self.assertEqual(merge(intervals("11:00-12:00", "9:00-10:00")), intervals("9:00-10:00", "11:00-12:00"))

    def test_joins_what_touches(self):
        self.assertEqual(merge(intervals("9:00-10:00", "10:00-11:00")), intervals("9:00-11:00"))

    def test_keeps_the_longer_one_that_holds_a_shorter(self):
        self.assertEqual(merge(intervals("9:00-12:00", "10:00-10:30")), intervals("9:00-12:00"))
