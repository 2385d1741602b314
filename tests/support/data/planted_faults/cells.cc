// A table of cells of any type behind each other, as a column store packs them.
#include <cstdint>
#include <cstdio>
#include <vector>

template <typename T> class Column
{
  public:
    explicit Column(const unsigned char *first) : first_(first) {}
    T operator[](std::size_t row) const
    {
        return *reinterpret_cast<const T *>(first_ + row * (1 + sizeof(T)) + 1); // FAULT misaligned load
    }

  private:
    const unsigned char *first_;
};

int main()
{
    std::vector<unsigned char> bytes(64, 1);
    Column<std::uint32_t> column(bytes.data());
    std::uint32_t sum = 0;
    for (std::size_t row = 0; row < 8; row++)
        sum += column[row]; // FAULT or here: the compiler may load where it uses
    std::printf("%u\n", static_cast<unsigned>(sum));
    return 0;
}
