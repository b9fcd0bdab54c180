// SPDX-License-Identifier: MIT
#include "picture.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "report.hpp"
#include "stroke_font.hpp"

namespace scg {
namespace {

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

Color plot_color(const Canvas& canvas, double x,
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
  const Canvas canvas = draw_picture(samples, 100, {"title", "subtitle"});
  EXPECT_EQ(plot_color(canvas, 0.9, 0.9), sequential_color(1));
  EXPECT_EQ(plot_color(canvas, 0.1, 0.9), sequential_color(0));
  EXPECT_EQ(plot_color(canvas, 0.9, 0.1), sequential_color(0));
}

TEST(Picture, SignsDecideTheMap) {
  std::vector<float> samples(100 * 100, -1.0F);
  for (std::size_t i = 0; i < 50 * 100; ++i) samples[i] = 2;
  const Canvas canvas = draw_picture(samples, 100, {});
  EXPECT_EQ(plot_color(canvas, 0.5, 0.2), diverging_color(1));
  EXPECT_EQ(plot_color(canvas, 0.5, 0.8), diverging_color(-0.5));
}

TEST(Picture, FlatAndOddValuesStillMakeAPicture) {
  EXPECT_GT(draw_picture(std::vector<float>(16, 0.0F), 4, {}).width(), 0);
  EXPECT_GT(draw_picture(std::vector<float>(16, 5.0F), 4, {}).width(), 0);
  EXPECT_GT(draw_picture(std::vector<float>(16, -5.0F), 4, {}).width(), 0);
}

TEST(Canvas, DrawingOutsideIsIgnored) {
  Canvas canvas(4, 3);
  canvas.set(-1, 0, black);
  canvas.set(4, 2, black);
  canvas.text(-50, -50, 12, "far away", black);
  canvas.text(2, 2, 40, "huge", black);
  EXPECT_EQ(canvas.width(), 4);
}

TEST(Canvas, SaysWhyAFileCannotBeWritten) {
  const Canvas canvas(2, 2);
  try {
    canvas.write_png("/nowhere/at/all.png");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cannot write the picture \"/nowhere/at/all.png\": No such file or directory");
  }
}

}  // namespace
}  // namespace scg
