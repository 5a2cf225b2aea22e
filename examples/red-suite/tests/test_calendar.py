import unittest

from roombook import Calendar, Interval, Taken


class BookingTest(unittest.TestCase):
    def setUp(self):
        self.room = Calendar()
        self.first = self.room.book("9:00-10:30", "planning")

    def test_refuses_a_second_booking_at_the_time(self):
        with self.assertRaisesRegex(Taken, "planning"):
            self.room.book("10:00-11:00", "interview")

    def test_takes_one_that_follows_at_once(self):
        self.room.book("10:30-11:00", "interview")
        self.assertEqual(self.room.taken(), [Interval.parse("9:00-11:00")])

    def test_takes_the_time_of_one_that_was_given_up(self):
        self.room.cancel(self.first)
        self.room.book("10:00-11:00", "interview")
        self.assertEqual(self.room.taken(), [Interval.parse("10:00-11:00")])

    def test_holds_may_overlap(self):
        self.room.hold("10:00-12:00", "perhaps a workshop")
        self.assertEqual(self.room.taken(), [Interval.parse("9:00-12:00")])


class FreeTest(unittest.TestCase):
    def setUp(self):
        self.room = Calendar()
        self.room.hold("9:00-12:00", "workshop")
        self.room.book("10:00-10:30", "call")
        self.room.book("14:00-15:00", "interview")

    def test_is_what_nobody_has(self):
        self.assertEqual(
            [str(gap) for gap in self.room.free("8:00-18:00")], ["08:00-09:00", "12:00-14:00", "15:00-18:00"]
        )

    def test_leaves_out_what_is_too_short(self):
        self.assertEqual([str(gap) for gap in self.room.free("8:00-15:30", at_least=90)], ["12:00-14:00"])

    def test_ends_with_the_time_asked_about(self):
        self.assertEqual([str(gap) for gap in self.room.free("12:30-13:30")], ["12:30-13:30"])

    def test_counts_the_use(self):
        self.assertAlmostEqual(self.room.use("8:00-16:00"), 0.5)
