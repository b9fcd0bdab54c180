// SPDX-License-Identifier: MIT
#include "picture.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "report.hpp"

namespace scg {
namespace {

/// Perceived lightness, 0 (black) to 1 (white).
double lightness(Color color) {
  const auto decode = [](std::uint8_t byte) {
    const double v = byte / 255.0;
    return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  };
  return std::cbrt(0.2126 * decode(color.red) + 0.7152 * decode(color.green) + 0.0722 * decode(color.blue));
}

TEST(ColorMap, SequentialGetsLighterAllTheWay) {
  double before = lightness(sequential_color(0));
  for (int i = 1; i <= 100; ++i) {
    const double now = lightness(sequential_color(i / 100.0));
    EXPECT_GT(now, before) << i;
    before = now;
  }
}

TEST(ColorMap, SequentialHasNoJumps) {
  for (int i = 1; i <= 200; ++i) {
    const Color a = sequential_color((i - 1) / 200.0);
    const Color b = sequential_color(i / 200.0);
    EXPECT_LT(std::abs(a.red - b.red) + std::abs(a.green - b.green) + std::abs(a.blue - b.blue), 24) << i;
  }
}

TEST(ColorMap, DivergingIsLightestAtZeroAndEvenOnBothSides) {
  EXPECT_GT(lightness(diverging_color(0)), 0.95);
  for (int i = 1; i <= 20; ++i) {
    const double t = i / 20.0;
    EXPECT_LT(lightness(diverging_color(t)), lightness(diverging_color(t - 0.05)));
    EXPECT_NEAR(lightness(diverging_color(t)), lightness(diverging_color(-t)), 0.06) << t;
  }
  EXPECT_GT(diverging_color(0.6).red, diverging_color(0.6).blue);
  EXPECT_GT(diverging_color(-0.6).blue, diverging_color(-0.6).red);
}

TEST(Font, DrawsEverythingAPictureCanSay) {
  Job job;
  Outcome outcome;
  for (const Problem& problem : problems()) {
    job.problem = problem;
    const Caption caption = caption_of(job, outcome);
    EXPECT_TRUE(can_draw(caption.title)) << caption.title;
    EXPECT_TRUE(can_draw(caption.subtitle)) << caption.subtitle;
  }
  EXPECT_TRUE(can_draw("0123456789.-+einf"));
  EXPECT_FALSE(can_draw("\x7f"));
}

TEST(Font, WidthCountsEveryCharacter) {
  EXPECT_EQ(text_width(""), 0);
  EXPECT_GT(text_width("mm"), 2 * text_width("m"));
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(round_ticks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(round_ticks(-3, 4, 4), (std::vector<double>{-2, 0, 2, 4}));
  EXPECT_EQ(round_ticks(2, 2, 5), (std::vector<double>{2}));
}

Color plot_color(const Picture& canvas, double x,
                 double y) {  // of the unit square; margins as in the picture of these tests
  const int left = 64;
  const int top = canvas.height() - 52 - 100;
  return canvas.at(left + static_cast<int>(x * 100), top + static_cast<int>((1 - y) * 100));
}

TEST(Picture, NorthIsOnTopAndEastIsRight) {
  std::vector<float> samples(100 * 100, 0.0F);
  for (std::size_t j = 80; j < 100; ++j) {
    for (std::size_t i = 80; i < 100; ++i) samples[j * 100 + i] = 1;
  }
  const Picture canvas = draw_picture(samples, 100, {"title", "subtitle"});
  EXPECT_EQ(plot_color(canvas, 0.9, 0.9), sequential_color(1));
  EXPECT_EQ(plot_color(canvas, 0.1, 0.9), sequential_color(0));
  EXPECT_EQ(plot_color(canvas, 0.9, 0.1), sequential_color(0));
}

TEST(Picture, SignsDecideTheMap) {
  std::vector<float> samples(100 * 100, -1.0F);
  for (std::size_t i = 0; i < 50 * 100; ++i) samples[i] = 2;
  const Picture canvas = draw_picture(samples, 100, {});
  EXPECT_EQ(plot_color(canvas, 0.5, 0.2), diverging_color(1));
  EXPECT_EQ(plot_color(canvas, 0.5, 0.8), diverging_color(-0.5));
}

TEST(Picture, FlatAndOddValuesStillMakeAPicture) {
  EXPECT_GT(draw_picture(std::vector<float>(16, 0.0F), 4, {}).width(), 0);
  EXPECT_GT(draw_picture(std::vector<float>(16, 5.0F), 4, {}).width(), 0);
  EXPECT_GT(draw_picture(std::vector<float>(16, -5.0F), 4, {}).width(), 0);
}

TEST(Picture, DrawingOutsideIsIgnored) {
  const std::string endless(5000, 'm');
  const Picture canvas = draw_picture({1.0F}, 1, {endless, endless});
  EXPECT_EQ(canvas.width(), 64 + 1 + 164);
  EXPECT_EQ(canvas.at(-1, 0), (Color{255, 255, 255}));
  EXPECT_EQ(canvas.at(canvas.width(), 2), (Color{255, 255, 255}));
}

TEST(Picture, TitleAndNumbersAreDrawnWhereTheyBelong) {
  const std::vector<float> samples(100 * 100, 1.0F);
  const Picture with = draw_picture(samples, 100, {"a title", "a subtitle"});
  const Picture without = draw_picture(samples, 100, {});
  const auto ink = [&](int from, int to) {
    int darker = 0;
    for (int y = from; y < to; ++y) {
      for (int x = 0; x < with.width(); ++x) darker += with.at(x, y).red < without.at(x, y).red ? 1 : 0;
    }
    return darker;
  };
  EXPECT_GT(ink(20, 36), 50) << "the title stands on line 34";
  EXPECT_GT(ink(46, 64), 50) << "the subtitle stands on line 60";
  EXPECT_EQ(ink(70, with.height()), 0) << "and nothing below";
}

TEST(Report, WhatCannotBeSaidIsNoException) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "w"), std::fclose);
  if (full == nullptr) GTEST_SKIP() << "needs /dev/full";
  EXPECT_FALSE(say(full.get(), "to nobody"));
  EXPECT_EQ(errno, ENOSPC);
}

TEST(Picture, SaysWhyAFileCannotBeWritten) {
  const Picture canvas(2, 2);
  try {
    canvas.write_png("/nowhere/at/all.png");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cannot write the picture \"/nowhere/at/all.png\": No such file or directory");
  }
}

}  // namespace
}  // namespace scg
